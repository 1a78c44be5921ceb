// Pages beside those of one run: the processes of the service, schedules, alerts of all runs, the tree of
// forks, and the search through a whole run.
import { useEffect, useState } from "preact/hooks";
import { age, asNumber, clock, go, num, query, readLines, runPath, setQuery, shown, useApi, useEvery, useRuns } from "./core";
import { A, Fate, Load, Note, Pill, State } from "./parts";
import { Chart } from "./chart";
import { RunHead } from "./run";
import type { FindView, RunAlert, RunList, RunRow, RunView, SchedulesView, ServicesView } from "./api";

const enc = encodeURIComponent;
const processKinds: Record<string, string> = { healthy: "good", starting: "run", waiting: "dim", stopped: "dim", stopping: "warn", backoff: "warn", unhealthy: "bad", failed: "bad" };

export function ServicesPage() {
  const s = useApi<ServicesView>("/services", useEvery(3000));
  const filter = query("q").toLowerCase();
  return <><h1>Services</h1><Load of={s}>{(v) => <>
    {v.remark && <Note kind="dim">{v.remark}</Note>}
    {v.processes.length > 0 && <div class="scroll" tabIndex={0}><table><thead><tr><th>process</th><th>state</th><th class="right">pid</th><th class="right">restarts</th><th>since</th><th>how the one before it ended</th></tr></thead>
      <tbody>{v.processes.map((p) => <tr key={p.name}><td><b>{p.name}</b></td><td><Pill kind={p.trouble ? "bad" : processKinds[p.state] ?? "dim"}>{p.state}</Pill>{p.trouble && <div class="bad small">{shown(p.trouble)}</div>}</td><td class="right">{p.pid || "–"}</td><td class="right">{p.restarts}</td><td class="nowrap" title={p.since}>{age(p.since)}</td><td>{p.last_exit ? shown(p.last_exit) : "–"}</td></tr>)}</tbody></table></div>}
    {v.processes.some((p) => p.gauges.length > 0) && <><h2>What they say of themselves</h2>
      <div class="bar"><input id="search" type="search" placeholder="part of a name, such as queue" aria-label="filter numbers" value={query("q")} onInput={(e) => setQuery({ q: e.currentTarget.value })} /></div>
      {v.processes.filter((p) => p.gauges.length > 0).map((p) => <section key={p.name}><h3>{p.name}</h3><div class="scroll" tabIndex={0}><table class="config"><tbody>{p.gauges.filter((g) => g.name.toLowerCase().includes(filter)).map((g) => <tr key={g.name}><td class="mono" title={g.help}>{g.name}</td><td class="right">{num(g.value, 6)}</td></tr>)}</tbody></table></div></section>)}</>}
  </>}</Load></>;
}

export function SchedulesPage() {
  const s = useApi<SchedulesView>("/schedules", useEvery(10_000));
  return <><h1>Schedules</h1><Load of={s}>{(v) => <>
    {v.remark && <Note kind="dim">{v.remark}</Note>}
    {!v.remark && !v.schedules.length && <div class="empty"><p>No schedule of re-trainings is there. One is made with:</p><pre class="code">temper schedule create ID --cron '0 3 * * *' --config FILE --data FILE</pre></div>}
    {v.schedules.map((x) => <section key={x.id} class="card"><h2>{x.id} {x.paused ? <Pill kind="warn">paused</Pill> : <Pill kind="good">on</Pill>}</h2>
      <dl class="facts"><dt>when</dt><dd>{x.when.join(", ") || "–"}</dd><dt>next</dt><dd>{x.next ? clock(x.next) : "never"}</dd><dt>good policy</dt><dd>{x.good ? <A href={runPath(x.good.split("@")[0])}>{x.good}</A> : "none yet"}</dd><dt>last</dt><dd>{x.last || "none has run"}</dd>
        <dt>running</dt><dd>{x.running.length ? x.running.join(", ") : "none"}</dd>{x.note && <><dt>note</dt><dd>{shown(x.note)}</dd></>}{(x.missed || x.skipped) ? <><dt>left out</dt><dd>{x.missed ?? 0} missed, {x.skipped ?? 0} skipped</dd></> : null}</dl>
      {x.events.length > 0 && <ul class="events">{x.events.map((e, i) => <li key={i}><span class="dim small">{clock(e.at)}</span> <Pill kind={e.kind === "fail" || e.kind === "refuse" ? "bad" : e.kind === "publish" ? "good" : "dim"}>{e.kind}</Pill> {shown(e.text)}</li>)}</ul>}</section>)}
  </>}</Load></>;
}

export function AllAlertsPage() {
  const a = useApi<RunAlert[]>("/alerts", useEvery(4000));
  return <><h1>Alerts</h1><Load of={a}>{(list) => list.length ? <div class="scroll" tabIndex={0}><table><thead><tr><th>run</th><th>state</th><th class="right">step</th><th>rule that is broken</th></tr></thead>
    <tbody>{list.map((x) => <tr key={x.run_id}><td><A href={runPath(x.run_id, "alerts")}>{x.run_id}</A></td><td><State state={x.state} /></td><td class="right">{x.step}</td><td class="bad">⚠ {shown(x.text)}</td></tr>)}</tbody></table></div>
    : <p class="dim">No run has a broken rule after its newest step.</p>}</Load></>;
}

// ---- the tree of forks -------------------------------------------------------------------

interface Branch { run: RunRow; row: number; parent?: number; from: number }

// branches gives each run of a family a line, the parent above its forks.
function branches(runs: RunRow[]): Branch[][] {
  const byID = new Map(runs.map((r) => [r.run_id, r])), out: Branch[][] = [], seen = new Set<string>();
  const children = (id: string) => runs.filter((r) => r.fork?.run_id === id);
  const add = (r: RunRow, family: Branch[], parent?: number) => {
    if (seen.has(r.run_id)) return;
    seen.add(r.run_id);
    const row = family.length;
    family.push({ run: r, row, parent, from: r.fork?.step ?? 0 });
    for (const c of children(r.run_id)) add(c, family, row);
  };
  for (const r of [...runs].sort((a, b) => ((a.started ?? "") < (b.started ?? "") ? -1 : 1))) {
    if (r.fork && byID.has(r.fork.run_id)) continue;
    const family: Branch[] = [];
    add(r, family);
    if (family.length > 1) out.push(family);
  }
  return out;
}

export function TreePage() {
  const list = useApi<RunList>("/runs", useEvery(4000));
  return <><h1>Forks</h1><Load of={list}>{(l) => {
    const families = branches(l.runs);
    if (!families.length) return <div class="empty"><p>No run of this store began with a checkpoint of another. This makes one:</p><pre class="code">temper run fork RUN --step best --set rl.optimizer.lr=1e-4</pre></div>;
    return families.map((f) => {
      const steps = Math.max(1, ...f.map((b) => Math.max(b.run.num_steps, b.run.step))), H = 44, W = 1000;
      const x = (step: number) => 8 + (W - 16) * step / steps, y = (row: number) => 16 + row * H;
      return <figure class="card tree" key={f[0].run.run_id}>
        <div class="tree-box" style={{ height: H * f.length + "px" }}>
          <svg viewBox={`0 0 ${W} ${H * f.length}`} preserveAspectRatio="none" role="img" aria-label={`${f.length} runs, the forks of ${f[0].run.run_id}`}>
            {f.map((b) => <g key={b.run.run_id}>{b.parent !== undefined && <path class="tree-link" d={`M${x(b.from)} ${y(b.parent)}V${y(b.row)}`} />}<path class="tree-rest" d={`M${x(b.from)} ${y(b.row)}H${x(b.run.num_steps || b.run.step)}`} /><path class="tree-made" d={`M${x(b.from)} ${y(b.row)}H${x(Math.max(b.run.step, b.from))}`} /></g>)}
          </svg>
          {f.map((b) => <div key={b.run.run_id} class="tree-label" style={{ top: y(b.row) + 3 + "px", left: 100 * x(Math.min(b.from, steps * 0.6)) / W + "%" }}><A href={runPath(b.run.run_id)}>{b.run.run_id}</A> <State state={b.run.state} lost={b.run.lost} /> <span class="dim small">{b.parent !== undefined ? `from step ${b.from}, ` : ""}step {b.run.step}/{b.run.num_steps}, reward {num(b.run.reward)}</span></div>)}
        </div>
      </figure>;
    });
  }}</Load></>;
}

// ---- search through a run ----------------------------------------------------------------

export function SearchPage({ run }: { run: string }) {
  const version = useRuns([run]);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  const mode = query("by", "numbers");
  return <><RunHead run={run} view={view.data} /><h2>Search</h2>
    <div class="tabs" role="tablist">{[["numbers", "by numbers"], ["text", "by text"]].map(([m, label]) => <button key={m} role="tab" aria-selected={mode === m} onClick={() => setQuery({ by: m === "numbers" ? null : m })}>{label}</button>)}</div>
    {mode === "text" ? <TextSearch key={run} run={run} /> : <Find key={run} run={run} version={version} />}</>;
}

function Find({ run, version }: { run: string; version: number }) {
  const filter = query("filter");
  const [text, setText] = useState(filter);
  const [again, setAgain] = useState(0);
  const found = useApi<FindView>(`/runs/${enc(run)}/find?filter=${enc(filter)}`, version * 1000 + again);
  const unread = found.data?.unread ?? 0;
  useEffect(() => { if (!found.loading && unread > 0 && !found.error) { const t = setTimeout(() => setAgain((n) => n + 1), 100); return () => clearTimeout(t); } }, [found.data, found.loading]);
  return <>
    <form class="bar" onSubmit={(e) => { e.preventDefault(); setQuery({ filter: text }); }}>
      <input id="search" class="wide" type="search" placeholder="reward=1 failed_calls>2 fate=dropped" aria-label="filter trajectories of all steps" value={text} maxLength={500} onInput={(e) => setText(e.currentTarget.value)} /><button class="primary">find</button></form>
    <Load of={found}>{(v) => <>
      <p class="dim small">Columns: {v.columns.join(", ")}.</p>
      <p role="status"><b>{v.found.toLocaleString()}</b> of {v.rows.toLocaleString()} trajectories{v.unread > 0 ? `; ${v.unread} steps are still being read` : ""}{v.missing > 0 ? `; of ${v.missing} steps no index is recorded` : ""}.</p>
      {v.steps.length > 1 && <Chart title="share that matches, by step" lines={[{ label: "share", x: [...v.steps].reverse().map((s) => s.step), y: [...v.steps].reverse().map((s) => s.found / Math.max(1, s.rows)) }]} height={110} onPick={(n) => go(runPath(run, "steps", n))} />}
      {v.first.length > 0 && <div class="scroll" tabIndex={0}><table><thead><tr><th class="right">step</th><th>trajectory</th><th class="right">reward</th><th>fate</th><th class="right">failed</th><th class="right">turns</th><th class="right">tokens</th><th>stop</th><th>answer</th></tr></thead>
        <tbody>{v.first.map((r) => <tr key={`${r.step} ${r.problem} ${r.rollout}`}><td class="right"><A href={runPath(run, "steps", r.step)}>{r.step}</A></td><td><A href={runPath(run, "steps", r.step, r.problem, r.rollout)}>{r.problem} / {r.rollout}</A></td><td class={"right " + (r.reward > 0 ? "good" : "bad")}>{num(r.reward)}</td><td><Fate fate={r.fate} /></td><td class="right">{r.failed_calls}/{r.calls}</td><td class="right">{r.turns}</td><td class="right">{r.response_tokens}</td><td>{r.stop_reason}</td><td class="mono">{shown(r.answer.slice(0, 60))}</td></tr>)}</tbody></table></div>}
      {v.found > v.first.length && <p class="dim small">The newest {v.first.length} are shown.</p>}
    </>}</Load></>;
}

interface Hit { step: number; problem: string; rollout: number; reward: number; before: string; match: string; after: string }
interface Line extends Partial<Hit> { progress?: { step: number; steps_done: number; steps: number; groups: number; bytes: number }; done?: boolean; hits?: number; truncated?: boolean; reason?: string; error?: string }

function TextSearch({ run }: { run: string }) {
  const q = query("text"), regex = query("regex") === "1";
  const [text, setText] = useState(q);
  const [hits, setHits] = useState<Hit[]>([]);
  const [state, setState] = useState<Line & { failed?: string }>({});
  useEffect(() => {
    setHits([]);
    setState({});
    if (!q) return;
    const stop = new AbortController();
    readLines<Line>(`/runs/${enc(run)}/search?limit=200&q=${enc(q)}${regex ? "&regex=1" : ""}`, stop.signal, (lines) => {
      const found = lines.filter((l): l is Hit => l.problem !== undefined);
      if (found.length) setHits((old) => [...old, ...found]);
      const last = [...lines].reverse().find((l) => l.progress || l.done || l.error);
      if (last) setState(last);
    }).catch((e: Error & { status?: number }) => { if (!stop.signal.aborted) setState({ failed: e.status === 404 ? "This run keeps no texts that can be searched, or the dashboard is of an older build." : e.message }); });
    return () => stop.abort();
  }, [q, regex, run]);
  return <>
    <form class="bar" onSubmit={(e) => { e.preventDefault(); setQuery({ text }); }}>
      <input id="search" class="wide" type="search" placeholder="text of a response, such as NameError" aria-label="search texts" value={text} maxLength={500} onInput={(e) => setText(e.currentTarget.value)} />
      <label class="check"><input type="checkbox" checked={regex} onChange={(e) => setQuery({ regex: e.currentTarget.checked ? "1" : null })} /> regular expression</label><button class="primary">search</button>{q && !state.done && !state.failed && <button type="button" onClick={() => setQuery({ text: null })}>stop</button>}</form>
    {state.failed && <Note kind="bad">{state.failed}</Note>}{state.error && <Note kind="bad">{state.error}</Note>}
    {q && <p role="status" class="dim small">{hits.length} found{state.progress ? `; step ${state.progress.step}, ${state.progress.steps_done} of ${state.progress.steps} steps searched` : ""}{state.done ? (state.truncated || state.error ? "; not all is searched" : "; all is searched") : ""}{state.reason ? ` (${state.reason})` : ""}</p>}
    {hits.length > 0 && <ul class="events hits">{hits.map((h, i) => <li key={i}><A href={runPath(run, "steps", h.step, h.problem, h.rollout)}>step {h.step}, {h.problem} / {h.rollout}</A> <span class={h.reward > 0 ? "good" : "bad"}>reward {num(asNumber(h.reward))}</span><br /><span class="mono small">{shown(h.before)}<mark>{shown(h.match)}</mark>{shown(h.after)}</span></li>)}</ul>}
  </>;
}
