// A step, a group and a trajectory.
import { useLayoutEffect, useMemo, useState } from "preact/hooks";
import { asNumber, bytes, go, num, percent, query, runPath, save, seconds, setQuery, shown, useApi, useRuns, type Num } from "./core";
import { A, Fate, Grid, Histogram, Load, Note, Pill, Status, Text, fateWords, sorted, type Col } from "./parts";
import { Chart, colorOf } from "./chart";
import { RunHead, Section } from "./run";
import type { Columns, GroupView, HistoryView, RunView, StepView, TokensView, TrajectoryView } from "./api";

const enc = encodeURIComponent;
type Words = { words: string[]; at: number[] };

class Rows {
  constructor(readonly c: Columns) {}
  get n() { return this.c.rows; }
  word(name: string, i: number) { const w = this.c.data[name] as Words; return w.words[w.at[i]]; }
  words(name: string) { return (this.c.data[name] as Words | undefined)?.words ?? []; }
  num(name: string, i: number): number | null { return asNumber((this.c.data[name] as Num[] | undefined)?.[i]); }
  text(name: string, i: number) { return String((this.c.data[name] as unknown[] | undefined)?.[i] ?? ""); }
}

const inRange = (v: number | null, range: string) => {
  if (!range) return true;
  const [a, b] = range.split("..").map(Number);
  return v !== null && v >= a && v < b;
};

// Trajectories is the table of a step or an evaluation with its filters.
function Trajectories({ columns, href }: { columns: Columns; href: (problem: string, k: number) => string }) {
  const r = useMemo(() => new Rows(columns), [columns]);
  const f = { fate: query("fate"), stop: query("stop"), reward: query("reward"), errors: query("errors"), q: query("q"), tokens: query("tokens"), turns: query("turns"), rate: query("rate"), sort: query("sort", "problem") };
  const rate = (i: number) => { const c = r.num("calls", i); return c ? (r.num("failed_calls", i) ?? 0) / c : null; };
  const cols: Col[] = useMemo(() => {
    const number = (name: string, label: string, width: number, digits = 3, title?: string): Col => ({ name, label, width, right: true, title, cell: (i) => num(r.num(name, i), digits), sort: (i) => r.num(name, i) });
    return [
      { name: "problem", label: "problem", width: 160, cell: (i) => r.word("problem", i), sort: (i) => r.word("problem", i) },
      number("rollout", "#", 40), { name: "reward", label: "reward", width: 70, right: true, cell: (i) => <span class={(r.num("reward", i) ?? 0) > 0 ? "good" : "bad"}>{num(r.num("reward", i))}</span>, sort: (i) => r.num("reward", i) },
      { name: "fate", label: "fate", width: 96, cell: (i) => <Fate fate={r.word("fate", i)} />, sort: (i) => r.word("fate", i) },
      number("advantage", "advantage", 86), number("p_err", "p_err", 62, 2, "share of tool calls that failed; 0.5 without calls"), number("p_format", "p_format", 76, 2, "0 with exactly one answer"), number("weight", "weight", 70, 3, "1/(p_err + p_format + smoothing)"),
      number("turns", "turns", 56), number("calls", "calls", 58), number("failed_calls", "failed", 62), number("response_tokens", "tokens", 68), number("mean_logprob", "logprob", 78, 3, "mean log-probability of the sampled tokens, nats"), number("mean_entropy", "entropy", 78, 3, "mean entropy of the policy at the sampled tokens, nats; of the groups that tracker.token_stats asks for"),
      { name: "stop_reason", label: "stop", width: 114, cell: (i) => r.word("stop_reason", i), sort: (i) => r.word("stop_reason", i) },
      { name: "answer", label: "answer", width: 220, cell: (i) => shown(r.text("answer", i).slice(0, 60)), sort: (i) => r.text("answer", i) },
    ];
  }, [r]);
  const rows = useMemo(() => {
    const out: number[] = [], needle = f.q.toLowerCase();
    for (let i = 0; i < r.n; i++) {
      if (f.fate && r.word("fate", i) !== f.fate) continue;
      if (f.stop && r.word("stop_reason", i) !== f.stop) continue;
      if (f.reward && ((r.num("reward", i) ?? 0) > 0) !== (f.reward === "1")) continue;
      if (f.errors && ((r.num("failed_calls", i) ?? 0) > 0) !== (f.errors === "1")) continue;
      if (!inRange(r.num("response_tokens", i), f.tokens) || !inRange(r.num("turns", i), f.turns) || !inRange(rate(i), f.rate)) continue;
      if (needle && !(r.word("problem", i) + " " + r.text("answer", i)).toLowerCase().includes(needle)) continue;
      out.push(i);
    }
    return sorted(out, cols, f.sort);
  }, [r, cols, JSON.stringify(f)]);
  const all = useMemo(() => { const take = (g: (i: number) => number | null) => Array.from({ length: r.n }, (_, i) => g(i)); return { tokens: take((i) => r.num("response_tokens", i)), turns: take((i) => r.num("turns", i)), rate: take(rate) }; }, [r]);
  const choose = (key: string, value: string, label: string, options: [string, string][]) =>
    <select aria-label={label} value={value} onChange={(e) => setQuery({ [key]: e.currentTarget.value })}><option value="">{label}</option>{options.map(([v, t]) => <option key={v} value={v}>{t}</option>)}</select>;
  const csv = () => {
    const names = cols.map((c) => c.name), cell = (c: string, i: number) => { const t = c in { problem: 1, fate: 1, stop_reason: 1 } ? r.word(c, i) : c === "answer" ? r.text(c, i) : String(r.num(c, i) ?? ""); return /[",\n\r]/.test(t) ? `"${t.replace(/"/g, '""')}"` : t; };
    save("trajectories.csv", new Blob([names.join(",") + "\n" + rows.map((i) => names.map((c) => cell(c, i)).join(",")).join("\n") + "\n"], { type: "text/csv" }));
  };
  return <>
    {columns.remark && <p class="dim small">{columns.remark}</p>}
    <div class="hists"><Histogram label="response tokens" values={all.tokens} range={f.tokens} onRange={(v) => setQuery({ tokens: v })} /><Histogram label="turns" values={all.turns} range={f.turns} onRange={(v) => setQuery({ turns: v })} bins={8} /><Histogram label="share of failed calls" values={all.rate} range={f.rate} onRange={(v) => setQuery({ rate: v })} bins={8} /></div>
    <div class="bar">
      <input id="search" type="search" placeholder="problem or answer" aria-label="filter by problem or answer" value={f.q} onInput={(e) => setQuery({ q: e.currentTarget.value })} />
      {choose("fate", f.fate, "any fate", r.words("fate").map((w) => [w, fateWords[w] ?? w]))}
      {choose("reward", f.reward, "any reward", [["1", "correct"], ["0", "wrong"]])}
      {choose("errors", f.errors, "any calls", [["1", "with failed calls"], ["0", "without failed calls"]])}
      {choose("stop", f.stop, "any end", r.words("stop_reason").map((w) => [w, w]))}
      <span class="dim">{rows.length.toLocaleString()} of {r.n.toLocaleString()}</span>
      <button onClick={csv}>CSV</button>
    </div>
    <Grid label="trajectories" cols={cols} rows={rows} sort={f.sort} onSort={(s) => setQuery({ sort: s === "problem" ? null : s })} href={(i) => href(r.word("problem", i), r.num("rollout", i)!)} onOpen={(i) => go(href(r.word("problem", i), r.num("rollout", i)!))} />
  </>;
}

export function StepPage({ run, step }: { run: string; step: number }) {
  const version = useRuns([run]);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  const s = useApi<StepView>(`/runs/${enc(run)}/steps/${step}`, version);
  const rows = useApi<Columns>(`/runs/${enc(run)}/steps/${step}/trajectories`, s.data?.record || (!s.data && !s.error) ? 0 : version); // those of a step that has ended stay
  const show = query("show", "trajectories");
  return <><RunHead run={run} view={view.data} /><Load of={s}>{(v) => {
    const m = v.record?.metrics ?? {};
    return <>
      <div class="bar"><h2>Step {step}</h2><span class="dim">{v.record?.stage_name}</span>
        <A href={runPath(run, "steps", Math.max(1, step - 1))} class="button" aria-label="step before" title="[">‹</A><A href={runPath(run, "steps", Math.max(step, Math.min(v.last, step + 1)))} class="button" aria-label="step after" title="]">›</A>
        {v.record ? <span class="dim">reward {num(m["critic/rewards/mean"])}, tool errors {percent(m["rollout/tool_error_rate"])} ({percent(m["roc/correct_tool_error_rate"])} in correct ones, {percent(m["roc/kept_correct_tool_error_rate"])} after resampling), {seconds(asNumber(m["timing_s/step"]) ?? NaN)}</span> : <Pill kind="run">under way</Pill>}
        {v.record?.sampled_by !== undefined && <Pill kind="warn">sampled by policy {v.record.sampled_by}</Pill>}</div>
      {v.texts && <Note kind="dim">{v.texts}</Note>}
      <Strip run={run} view={v} />
      <div class="tabs" role="tablist">{["trajectories", "groups", "numbers"].map((t) => <button key={t} role="tab" aria-selected={show === t} onClick={() => setQuery({ show: t === "trajectories" ? null : t })}>{t}</button>)}</div>
      {show === "trajectories" && <Load of={rows}>{(c) => <Trajectories columns={c} href={(p, k) => runPath(run, "steps", step, p, k)} />}</Load>}
      {show === "groups" && <div class="scroll" tabIndex={0}><table><thead><tr><th>problem</th><th>fate</th><th class="right">correct</th><th class="right">kept</th><th class="right">lost</th><th class="right">failed calls</th><th class="right">tokens</th></tr></thead>
        <tbody>{v.groups.map((g) => <tr key={g.problem}><td><A href={runPath(run, "steps", step, g.problem)}>{g.problem}</A></td><td><Fate fate={g.fate} /></td><td class="right">{g.correct}/{g.num}</td><td class="right">{g.kept}</td><td class="right">{g.lost ?? 0}</td><td class="right">{g.failed}/{g.calls}</td><td class="right">{num(g.tokens)}</td></tr>)}</tbody></table></div>}
      {show === "numbers" && <div class="scroll" tabIndex={0}><table><thead><tr><th>series</th><th class="right">value</th></tr></thead><tbody>{Object.entries(m).sort().map(([k, x]) => <tr key={k}><td class="mono">{k}</td><td class="right">{num(x as Num, 6)}</td></tr>)}</tbody></table></div>}
    </>;
  }}</Load></>;
}

// Strip has a cell for each group.
function Strip({ run, view }: { run: string; view: StepView }) {
  if (!view.groups.length) return <p class="dim small">What became of the groups is not recorded.</p>;
  const count = (f: string) => view.groups.filter((g) => g.fate === f).length;
  return <figure class="strip-box"><nav class="strip" aria-label="groups of the step">{view.groups.map((g) => <A key={g.problem} href={runPath(run, "steps", view.step, g.problem)} class={"group group-" + g.fate} style={{ "--heat": String(g.num ? g.correct / g.num : 0) }} title={`${g.problem}: ${g.correct} of ${g.num} correct, ${fateWords[g.fate] ?? g.fate}`} aria-label={`group ${g.problem}, ${g.correct} of ${g.num} correct, ${fateWords[g.fate] ?? g.fate}`}>{""}</A>)}</nav>
    <figcaption class="small"><span><i class="group group-kept" /> {count("kept")} kept</span> <span><i class="group group-all_correct" /> {count("all_correct")} all correct</span> <span><i class="group group-all_wrong" /> {count("all_wrong")} all wrong</span>{count("empty") > 0 && <span> <i class="group group-empty" /> {count("empty")} lost</span>}</figcaption></figure>;
}

export function EvalPage({ run, name }: { run: string; name: string }) {
  const view = useApi<RunView>(`/runs/${enc(run)}`);
  const c = useApi<Columns>(`/runs/${enc(run)}/evals/${enc(name)}`);
  return <><RunHead run={run} view={view.data} /><h2>Evaluation {name}</h2><p class="dim">Accuracy, tokens and turns are of the greedy rollouts, tool errors of the sampled ones.</p><Load of={c}>{(v) => <Trajectories columns={v} href={(p, k) => runPath(run, "evals", name, p, k)} />}</Load></>;
}

// ---- group -------------------------------------------------------------------------------

const fateOrder = ["kept", "dropped", "uniform", "excluded", ""];

export function GroupPage({ run, step, problem }: { run: string; step: number; problem: string }) {
  const view = useApi<RunView>(`/runs/${enc(run)}`);
  const g = useApi<GroupView>(`/runs/${enc(run)}/steps/${step}/${enc(problem)}`);
  const side = query("view") === "columns";
  return <><RunHead run={run} view={view.data} /><Load of={g}>{(v) => {
    const rows = [...v.rows].sort((a, b) => fateOrder.indexOf(a.fate) - fateOrder.indexOf(b.fate) || b.reward - a.reward || a.rollout - b.rollout);
    const at = v.problems.indexOf(problem);
    const near = (d: number) => v.problems[at + d];
    return <>
      <div class="bar"><h2><A href={runPath(run, "steps", step)}>Step {step}</A> · {problem}</h2>{v.fate && <Fate fate={v.fate} />}
        {near(-1) && <A class="button" href={runPath(run, "steps", step, near(-1))} aria-label="group before">‹</A>}{near(1) && <A class="button" href={runPath(run, "steps", step, near(1))} aria-label="group after">›</A>}
        <label class="check"><input type="checkbox" checked={side} onChange={(e) => setQuery({ view: e.currentTarget.checked ? "columns" : null })} /> side by side</label></div>
      <div class="problem"><Text text={v.problem.prompt ?? ""} empty="The prompt is not recorded." /><p><span class="dim">key</span> <code>{shown(v.problem.answer ?? "") || "not recorded"}</code>{v.problem.level ? <span class="dim"> level {v.problem.level}</span> : null}{v.problem.env && <span class="dim"> {v.problem.env}</span>}</p></div>
      <p class="why">{v.why}</p>
      <OtherSteps run={run} step={step} problem={problem} />
      {v.source === "trajectories" && <p class="dim small">No index of this step is recorded; fates are those of the samples that the trainer got.</p>}
      {v.texts && <Note kind="dim">{v.texts}</Note>}
      <div class={side ? "rollouts side-by-side" : "rollouts"}>{rows.map((r) => <article key={r.rollout} class={"rollout rollout-" + r.fate}>
        <header><A href={runPath(run, "steps", step, problem, r.rollout)}>rollout {r.rollout}</A> <Fate fate={r.fate} /> <span class={r.reward > 0 ? "good" : "bad"}>reward {num(r.reward)}</span> {r.advantage !== undefined && r.advantage !== null && <span class="dim">advantage {r.advantage > 0 ? "+" : ""}{num(r.advantage)}</span>}
          <span class="dim">{r.turns} turns, {r.failed_calls}/{r.calls} calls failed, {r.response_tokens} tokens, {r.stop_reason}</span></header>
        <p class="why">{r.why}</p>
        {side && <Text text={r.end} mono empty="The text is not in the store." />}
        {!side && r.answer && <p class="dim small">answer <code>{shown(r.answer)}</code></p>}
      </article>)}</div>
    </>;
  }}</Load></>;
}

// OtherSteps has a dot for each step in which the problem was sampled, as high as the share of correct rollouts.
function OtherSteps({ run, step, problem }: { run: string; step: number; problem: string }) {
  const asked = query("history") === "1";
  const h = useApi<HistoryView>(asked ? `/runs/${enc(run)}/problems/${enc(problem)}` : null);
  if (!asked) return <p><button onClick={() => setQuery({ history: "1" })}>in other steps</button></p>;
  if (!h.data) return h.error ? <Note kind="bad">{h.error.message}</Note> : <p class="dim loading" role="status">loading …</p>;
  const W = 1000, H = 60, last = Math.max(2, h.data.last), x = (n: number) => 12 + (W - 24) * (n - 1) / (last - 1), y = (share: number) => H - 12 - (H - 24) * share;
  return <figure class="chart dots"><svg viewBox={`0 0 ${W} ${H}`} class="bars" role="img" aria-label={`share of correct rollouts of this problem in ${h.data.steps.length} steps`}>
    <polyline fill="none" stroke="var(--line)" points={h.data.steps.map((s) => `${x(s.step)},${y(s.num ? s.correct / s.num : 0)}`).join(" ")} />
    {h.data.steps.map((s) => <circle key={s.step} cx={x(s.step)} cy={y(s.num ? s.correct / s.num : 0)} r={s.step === step ? 8 : 5} fill={colorOf(s.kept ? 0 : 1)} style={{ cursor: "pointer" }} onClick={() => go(runPath(run, "steps", s.step, problem))}><title>{`step ${s.step}: ${s.correct} of ${s.num} correct, ${s.kept} kept`}</title></circle>)}</svg>
    <figcaption class="small">The same problem in other steps: {h.data.steps.map((s) => <span key={s.step}><A href={runPath(run, "steps", s.step, problem)} class={s.step === step ? "here" : ""}>step {s.step}</A> <span class="dim">{s.correct}/{s.num}</span> </span>)}{h.data.left > 0 && <span class="dim">({h.data.left} more steps are not read yet)</span>}</figcaption></figure>;
}

// ---- trajectory --------------------------------------------------------------------------

export function TrajectoryPage({ run, step, evaluation, problem, k }: { run: string; step?: number; evaluation?: string; problem: string; k: number }) {
  const view = useApi<RunView>(`/runs/${enc(run)}`);
  const base = evaluation ? `/runs/${enc(run)}/evals/${enc(evaluation)}/${enc(problem)}/${k}` : `/runs/${enc(run)}/steps/${step}/${enc(problem)}/${k}`;
  const t = useApi<TrajectoryView>(base);
  const tab = query("tab", "conversation"), other = query("beside");
  const way = (n: number) => (evaluation ? runPath(run, "evals", evaluation, problem, n) : runPath(run, "steps", step!, problem, n)) + (tab === "conversation" ? "" : "?tab=" + tab);
  const list = t.data?.rollouts ?? [], at = list.indexOf(k);
  useLayoutEffect(() => { // with the page, not after it: a key may come at once
    const keys = (e: KeyboardEvent) => {
      if ((e.target as HTMLElement).matches("input,textarea,select") || e.ctrlKey || e.metaKey || e.altKey) return;
      if (e.key === "j" && at >= 0 && at + 1 < list.length) go(way(list[at + 1]));
      if (e.key === "k" && at > 0) go(way(list[at - 1]));
      if (e.key === "t" && !evaluation) setQuery({ tab: tab === "tokens" ? null : "tokens" });
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  });
  return <><RunHead run={run} view={view.data} /><Load of={t}>{(v) => <>
    <div class="bar"><h2>{step !== undefined ? <><A href={runPath(run, "steps", step)}>Step {step}</A> · <A href={runPath(run, "steps", step, problem)}>{problem}</A></> : <><A href={runPath(run, "evals", evaluation!)}>Evaluation {evaluation}</A> · {problem}</>} · rollout {k}</h2>
      {v.fate && <Fate fate={v.fate} />}<span class={v.reward > 0 ? "good" : "bad"}>reward {num(v.reward)}</span>{v.advantage !== undefined && v.advantage !== null && <span class="dim">advantage {num(v.advantage)}</span>}
      {at > 0 && <A class="button" href={way(list[at - 1])} aria-label="rollout before" title="k">‹</A>}{at >= 0 && at + 1 < list.length && <A class="button" href={way(list[at + 1])} aria-label="rollout after" title="j">›</A>}</div>
    {v.why && <p class="why">{v.why}</p>}
    {v.err && <Note kind="bad">{shown(v.err)}</Note>}
    <p class="dim small">policy {v.policy_version}, {v.prompt_tokens} + {v.response_tokens} tokens, {v.turns} turns, {v.failed_calls} of {v.calls} calls failed, ended by {v.stop_reason}, mean log-probability {num(v.mean_logprob)}; {(v as Spent).spent ? `${seconds((v as Spent).spent!.sample_s)} generating, ${seconds((v as Spent).spent!.tool_s)} in tools` : "times of turns and calls: not recorded"}</p>
    <div class="tabs" role="tablist">{(evaluation ? ["conversation", "time", "raw"] : ["conversation", "tokens", "time", "raw"]).map((x) => <button key={x} role="tab" aria-selected={tab === x} onClick={() => setQuery({ tab: x === "conversation" ? null : x })}>{x}</button>)}</div>
    {!evaluation && tab === "conversation" && <select aria-label="show another rollout beside" value={other} onChange={(e) => setQuery({ beside: e.currentTarget.value })}><option value="">beside …</option>{list.filter((n) => n !== k).map((n) => <option key={n} value={String(n)}>rollout {n}</option>)}</select>}
    {tab === "conversation" && (other && !evaluation ? <div class="beside"><Conversation t={v} /><Beside run={run} step={step!} problem={problem} k={Number(other)} /></div> : <Conversation t={v} />)}
    {tab === "tokens" && !evaluation && <Tokens path={base + "/tokens"} />}
    {tab === "time" && <Times t={v} />}
    {tab === "raw" && <Raw t={v} path={base} />}
  </>}</Load></>;
}

function Beside({ run, step, problem, k }: { run: string; step: number; problem: string; k: number }) {
  const t = useApi<TrajectoryView>(`/runs/${enc(run)}/steps/${step}/${enc(problem)}/${k}`);
  return <div><Load of={t}>{(v) => <><p><A href={runPath(run, "steps", step, problem, k)}>rollout {k}</A> <Fate fate={v.fate} /> reward {num(v.reward)}</p><p class="why">{v.why}</p><Conversation t={v} /></>}</Load></div>;
}

// Spent is how long turns and calls took, where the run has recorded it.
interface CallTime { begin_s: number; took_s?: number; queue_s?: number; wall_s?: number; cpu_s?: number; peak_memory_bytes?: number; stdout_bytes?: number; stderr_bytes?: number; stdout?: string; stderr?: string }
type Spent = { spent?: { sample_s: number; tool_s: number; turns: { begin_s: number; generate_s: number; calls?: CallTime[] }[] } };

// Times has a lane for generating, waiting and running, and the same as a table.
function Times({ t }: { t: TrajectoryView }) {
  const s = (t as Spent).spent;
  if (!s) return <Note kind="dim">The times of turns and calls are not recorded: the program that made this step did not store them.</Note>;
  const calls = s.turns.flatMap((turn, i) => (turn.calls ?? []).map((c, j) => ({ ...c, turn: i, name: t.conversation[i]?.calls?.[j]?.name || "call" })));
  const ran = (c: CallTime) => (c.took_s ?? c.wall_s ?? 0) > 0; // a malformed call runs nothing, and begins nowhere
  const end = Math.max(1e-6, ...s.turns.map((x) => x.begin_s + x.generate_s), ...calls.map((c) => c.begin_s + (c.took_s ?? c.wall_s ?? 0)));
  const bar = (kind: string, from: number, took: number, label: string, key: string) => <div key={key} class={"span span-" + kind} tabIndex={0} style={{ left: `min(${100 * from / end}%, 100% - 10px)`, width: Math.max(0.4, 100 * took / end) + "%" }} title={label} role="img" aria-label={label}>{took / end > 0.06 ? seconds(took) : ""}</div>;
  const lane = (name: string, bars: preact.ComponentChildren) => <div class="lane" role="listitem"><span class="lane-name">{name}</span><div class="lane-track">{bars}</div></div>;
  return <>
    <div class="timeline" role="list">
      {lane("generate", s.turns.map((x, i) => bar("stage", x.begin_s, x.generate_s, `turn ${i + 1}: generated for ${seconds(x.generate_s)} from ${seconds(x.begin_s)} on`, "g" + i)))}
      {lane("queue", calls.filter((c) => (c.queue_s ?? 0) > 0).map((c, i) => bar("pause", c.begin_s, c.queue_s!, `turn ${c.turn + 1}: ${c.name} waited ${seconds(c.queue_s!)} for an executor`, "q" + i)))}
      {lane("tool", calls.filter(ran).map((c, i) => bar("tool", c.begin_s + (c.queue_s ?? 0), Math.max(0, (c.took_s ?? c.wall_s ?? 0) - (c.queue_s ?? 0)), `turn ${c.turn + 1}: ${c.name} took ${seconds(c.took_s ?? c.wall_s ?? 0)}`, "t" + i)))}
      <div class="lane axis"><span class="lane-name" /><div class="lane-track"><span>0 s</span><span>{seconds(end)} in all</span></div></div>
    </div>
    <div class="scroll" tabIndex={0}><table><thead><tr><th>turn</th><th>what</th><th class="right">begins</th><th class="right">takes</th><th class="right">queue</th><th class="right">program</th><th class="right">CPU</th><th class="right">memory</th><th class="right">output</th></tr></thead>
      <tbody>{s.turns.flatMap((x, i) => [<tr key={i}><td>{i + 1}</td><td>generate</td><td class="right">{seconds(x.begin_s)}</td><td class="right">{seconds(x.generate_s)}</td><td /><td /><td /><td /><td /></tr>,
        ...calls.filter((c) => c.turn === i).map((c, j) => !ran(c) ? <tr key={i + "." + j}><td /><td>{c.name}</td><td class="right dim" colSpan={7}>did not run</td></tr> : <tr key={i + "." + j}><td /><td>{c.name}</td><td class="right">{seconds(c.begin_s)}</td><td class="right">{c.took_s === undefined ? "–" : seconds(c.took_s)}</td><td class="right">{c.queue_s === undefined ? "–" : seconds(c.queue_s)}</td><td class="right">{c.wall_s === undefined ? "–" : seconds(c.wall_s)}</td><td class="right">{c.cpu_s === undefined ? "–" : seconds(c.cpu_s)}</td><td class="right">{c.peak_memory_bytes === undefined ? "–" : bytes(c.peak_memory_bytes)}</td><td class="right">{c.stdout_bytes === undefined ? "–" : bytes(c.stdout_bytes + (c.stderr_bytes ?? 0))}</td></tr>)])}</tbody></table></div>
    {calls.filter((c) => c.stdout || c.stderr).map((c, i) => <Section key={i} title={`Whole output of turn ${c.turn + 1}`}>{c.stdout && <Text text={c.stdout} mono />}{c.stderr && <><p class="dim small">standard error</p><Text text={c.stderr} mono /></>}</Section>)}
  </>;
}

// Arguments shows each text among the arguments of a call as it is, such as the code of a
// program, and all else as JSON.
function Arguments({ text }: { text: string }) {
  let members: [string, unknown][] = [];
  try { members = Object.entries(JSON.parse(text)); } catch { return <Text text={text} mono />; }
  return <>{members.map(([name, value]) => <div key={name}><p class="dim small">{name}</p><Text text={typeof value === "string" ? value : JSON.stringify(value)} mono /></div>)}</>;
}

function Conversation({ t }: { t: TrajectoryView }) {
  return <div class="conversation">
    <article class="msg msg-prompt"><header>prompt <span class="dim">{t.prompt_tokens} tokens</span></header><Text text={t.prompt} /></article>
    {t.conversation.map((turn, i) => <div key={i}>
      <article class="msg msg-policy"><header>policy <span class="dim">turn {i + 1}, {turn.end - turn.start} tokens, mean log-probability {num(turn.mean_logprob)}{turn.finish !== "stop" ? `, ended by ${turn.finish}` : ""}</span></header><Text text={turn.text} /></article>
      {(turn.calls ?? []).map((c, j) => <article key={j} class="msg msg-tool"><header>{c.name || "call"} <Status status={c.status} />{!c.id && <span class="dim">malformed</span>}</header>
        <Arguments text={c.arguments ?? ""} />
        <p class="dim small">answer to the policy</p><Text text={c.response} mono empty="no output" /></article>)}
      {!turn.calls?.length && turn.result && <article class="msg msg-tool"><header>after the turn</header><Text text={turn.result} mono /></article>}
    </div>)}
    <article class="msg msg-end"><header>end</header><p>answer <code>{shown(t.answer) || "none"}</code> <span class="dim">key</span> <code>{shown(t.problem_data.answer ?? "") || "not recorded"}</code></p>{t.reward_details && <Text text={t.reward_details} mono />}{t.cut && <Note kind="warn">{t.cut}</Note>}</article>
  </div>;
}

const reflection = /^(wait|but|however|check|verify|actually|hmm|alternatively|recheck|maybe|instead|error|fix|wrong|retry|again)$/i;
const page = 3000;

// TrainerTokens are what a run records of each token where record.token_stats asks for it.
type TrainerTokens = { trainer_logprobs?: Num[]; entropies?: Num[] };

function Tokens({ path }: { path: string }) {
  const t = useApi<TokensView>(path);
  const [at, setAt] = useState<number | null>(null);
  const [from, setFrom] = useState(0);
  return <Load of={t}>{(v) => {
    const { trainer_logprobs: trained, entropies } = v as TrainerTokens;
    const ways: [string, string, (i: number) => number | null][] = [["", "log-probability of the engine", (i) => { const x = asNumber(v.logprobs[i]); return x === null ? null : -x * 2; }]];
    if (entropies) ways.push(["entropy", "entropy", (i) => { const x = asNumber(entropies[i]); return x === null ? null : x * 3; }]);
    if (trained) ways.push(["difference", "trainer − engine", (i) => { const a = asNumber(trained[i]), b = asNumber(v.logprobs[i]); return a === null || b === null ? null : Math.abs(a - b) * 20; }]);
    const way = ways.find((w) => w[0] === query("heat")) ?? ways[0];
    const heat = (x: number | null) => x === null ? 0 : Math.max(0, Math.min(8, Math.floor(x)));
    // Forking tokens are those of the highest entropy: the top fifth of what was sampled (arXiv 2506.01939).
    const spreads = (entropies ?? []).map(asNumber).filter((x): x is number => x !== null).sort((a, b) => b - a), forking = spreads.length ? spreads[Math.floor(spreads.length / 5)] : Infinity;
    const out = [];
    for (let i = from; i < Math.min(v.ids.length, from + page); i++) {
      const text = v.texts[i];
      const cls = "tok" + (v.mask[i] ? " heat-" + heat(way[2](i)) : " masked") + (entropies && v.mask[i] && (asNumber(entropies[i]) ?? -1) > forking ? " forks" : "") + (i === v.prompt_tokens ? " first" : "") + (v.mask[i] && reflection.test(text.trim()) ? " reflects" : "") + (at === i ? " here" : "");
      out.push(<span key={i} class={cls} data-i={i}>{shown(text).replace(/\n/g, "⏎\n") || "·"}</span>);
    }
    const find = (e: Event) => { const i = (e.target as HTMLElement).dataset?.i; if (i !== undefined) setAt(Number(i)); };
    const at0 = v.ids.map((_, i) => i), lines = [{ label: way[1], x: at0, y: way[0] === "entropy" ? entropies! : way[0] === "difference" ? v.ids.map((_, i) => { const a = asNumber(trained![i]), b = asNumber(v.logprobs[i]); return a === null || b === null ? null : a - b; }) : v.logprobs }];
    return <>
      {ways.length > 1 && <div class="bar"><label>colour <select value={way[0]} onChange={(e) => setQuery({ heat: e.currentTarget.value })}>{ways.map((w) => <option key={w[0]} value={w[0]}>{w[1]}</option>)}</select></label></div>}
      <Chart key={way[0]} title={way[1]} unit="nats" lines={lines} height={110} xLabel="token" gaps onPick={(x) => { setFrom(Math.floor(x / page) * page); setAt(x); }} />
      <p class="dim small">{way[0] === "" ? "Dark is unlikely." : "Dark is high."} {entropies && "Outlined ones fork: the fifth with the highest entropy. "}Dimmed tokens are in no loss: the policy did not sample them. Underlined ones are words of reflection.{v.missing.length > 0 && ` Not recorded: ${v.missing.join(", ")}.`}</p>
      <p class="token-info" role="status">{at === null ? "Point at a token." : <>token {at}: id {v.ids[at]}, <code>{shown(v.texts[at])}</code>{v.mask[at] ? `, log-probability ${num(v.logprobs[at], 4)}, probability ${num(Math.exp(asNumber(v.logprobs[at]) ?? NaN), 4)}` : ", not sampled"}{at !== null && v.mask[at] && trained ? `, trainer ${num(trained[at], 4)}` : ""}{at !== null && v.mask[at] && entropies ? `, entropy ${num(entropies[at], 4)}` : ""}</>}</p>
      {v.ids.length > page && <div class="bar"><button disabled={from === 0} onClick={() => setFrom(from - page)}>‹</button><span class="dim">tokens {from} to {Math.min(v.ids.length, from + page)} of {v.ids.length}</span><button disabled={from + page >= v.ids.length} onClick={() => setFrom(from + page)}>›</button></div>}
      <div class="tokens" tabIndex={0} aria-label="tokens" role="group" onMouseOver={find} onClick={find} onKeyDown={(e) => {
        const d = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
        if (d) { e.preventDefault(); setAt(Math.max(0, Math.min(v.ids.length - 1, (at ?? v.prompt_tokens) + d))); }
      }}>{out}</div>
    </>;
  }}</Load>;
}

function Raw({ t, path }: { t: TrajectoryView; path: string }) {
  const text = JSON.stringify(t, null, 2), curl = `curl '${location.origin}/api/v1${path}'`;
  return <Section title="Record"><p><code>{curl}</code> <button onClick={() => void navigator.clipboard?.writeText(text)}>copy JSON</button></p><Text text={text} mono /></Section>;
}
