// The pages of one run: its overview, its series, its time line, checkpoints, configuration, alerts,
// and the drawer that steers it.
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { asNumber, bytes, clock, download, go, num, percent, query, runPath, seconds, send, setQuery, token, useApi, useEvery, useRuns, type Num } from "./core";
import { A, Load, Note, Pill, State, Text } from "./parts";
import { colorOf } from "./chart";
import { Overlay, mainSeries, thinned } from "./runs";
import type { About, Answer, CheckpointsView, ConfigView, EvalRow, Notes as RunNotes, Preview, RunList, RunStatus, RunView, SeriesView, TimelineView, Usage } from "./api";

const enc = encodeURIComponent;
export const steering = signal(false);
// wanted is what the drawer shall offer when it opens, such as a fork from one checkpoint.
const wanted = signal<{ order: string; from: string } | null>(null);
// asked counts what was wanted, so that a drawer that is open begins anew; given counts the commands that were taken.
const asked = signal(0), given = signal(0);
const ask = (order: string, from: string | number) => { wanted.value = { order, from: String(from) }; asked.value++; steering.value = true; };

// RunHead is above every page of a run.
export function RunHead({ run, view }: { run: string; view?: RunView }) {
  const live = view && !["done", "stopped", "failed"].includes(view.state);
  const about = useApi<About>("/about");
  const tick = useEvery(3000);
  const status = useApi<RunStatus>(live && about.data && !about.data.steering ? `/runs/${enc(run)}/status` : null, tick);
  const s = status.data;
  return <div class="run-head">
    <h1><A href={runPath(run)}>{run}</A></h1>
    {view && <>
      <State state={s?.state ?? view.state} />
      {live && status.error && <span class="bad small">{status.error.message}</span>}
      <span>step <b>{s?.step || view.step}</b> of {view.num_steps}</span>
      {view.stage && <span class="dim">{view.stage}</span>}
      {s && s.eta_seconds > 0 && live && <span class="dim">{seconds(s.eta_seconds)} left</span>}
      {view.alerts.length > 0 && <A href={runPath(run, "alerts")} class="bad">⚠ {view.alerts.length} {view.alerts.length === 1 ? "alert" : "alerts"}</A>}
      <button class={live ? "primary steer" : "steer"} onClick={() => { steering.value = !steering.value; }} aria-expanded={steering.value}>{live ? "steer" : "fork"}</button>
    </>}
    {steering.value && view && <Drawer key={asked.value} run={run} view={view} why={about.data?.steering} status={s} />}
  </div>;
}

// ---- steering ----------------------------------------------------------------------------

const orders = ["pause", "resume", "checkpoint", "amend", "skip_stage", "repeat_stage", "restart", "stop", "fork", "pin", "unpin"];
const ended = ["fork", "pin", "unpin"]; // what a run that has ended can still be asked
const meanings: Record<string, string> = {
  pause: "Holds the run at the next safe point.", resume: "Lets the paused run go on.", checkpoint: "Saves a checkpoint after the current step; at once while the run is paused.",
  amend: "Changes keys of the configuration from a step on. What was made before stays as it was.", skip_stage: "Ends the current stage, or leaves out a later one.",
  repeat_stage: "Runs a stage once more after all others.", restart: "Ends the run and starts another from its checkpoint.", stop: "Ends the run at the next safe point and writes its summary.",
  fork: "Starts another run from a checkpoint of this one; this one goes on.", pin: "Keeps a checkpoint until it is unpinned.", unpin: "Lets a pinned checkpoint go, as the rules of checkpoint say.",
};

function Drawer({ run, view, why, status }: { run: string; view: RunView; why?: string; status?: RunStatus }) {
  const over = ["done", "stopped", "failed"].includes(view.state);
  const [order, setOrder] = useState(wanted.value?.order ?? (over ? "fork" : status?.state === "paused" ? "resume" : "pause"));
  const [name, setName] = useState("");
  const [reason, setReason] = useState("");
  const [by, setBy] = useState(localStorage.getItem("temper.by") ?? "");
  const [set, setSet] = useState("");
  const [from, setFrom] = useState(wanted.value?.from ?? "");
  const [stage, setStage] = useState("");
  const [now, setNow] = useState(false);
  const [confirm, setConfirm] = useState("");
  const [preview, setPreview] = useState<Preview | null>(null);
  const [answer, setAnswer] = useState<{ text: string; bad?: boolean } | null>(null);
  const [busy, setBusy] = useState(false);
  const first = useRef<HTMLSelectElement>(null);
  useLayoutEffect(() => { first.current?.focus(); wanted.value = null; }, []); // at once: later it would take the focus from what is being typed
  const changes = order === "amend" || order === "restart" || order === "fork";
  const confirms = order === "stop" || order === "restart";
  const body = () => {
    const values = Object.fromEntries(set.split(/\n/).map((l) => l.trim()).filter(Boolean).map((l) => { const i = l.indexOf("="); return i < 0 ? [l, ""] : [l.slice(0, i).trim(), l.slice(i + 1).trim()]; }));
    return { command: {
      reason, by: by || undefined, ...(now ? { now } : {}), ...(changes && set.trim() ? { set: values } : {}),
      ...(order === "amend" && from ? { from_step: Number(from) } : {}), ...((order === "restart" || ended.includes(order)) && from ? { from } : {}), ...(order === "fork" && name ? { run_id: name } : {}),
      ...((order === "skip_stage" || order === "repeat_stage") && stage ? { stage } : {}),
    }, ...(confirms ? { confirm } : {}) };
  };
  const tell = async (f: () => Promise<void>) => { setBusy(true); setAnswer(null); try { await f(); } catch (e) { setAnswer({ text: (e as Error).message, bad: true }); } setBusy(false); };
  const look = () => tell(async () => setPreview(await send<Preview>(`/runs/${enc(run)}/preview/${order}`, body())));
  const give = () => tell(async () => {
    localStorage.setItem("temper.by", by);
    setAnswer({ text: (await send<Answer>(`/runs/${enc(run)}/commands/${order}`, body())).answer });
    setPreview(null);
    given.value++;
  });
  const needsLook = changes && set.trim() !== "" && !preview;
  return <aside class="drawer" aria-label="steer the run" onKeyDown={(e) => { if (e.key === "Escape") steering.value = false; }}>
    <div class="drawer-head"><h2>Steer {run}</h2><button class="icon" aria-label="close" onClick={() => { steering.value = false; }}>×</button></div>
    {why && <Note kind="warn">{why}</Note>}
    {!why && !token.value && <Note kind="warn">Commands need the token. Open the address that the start of the dashboard has printed, or enter it here:
      <input type="password" aria-label="token" placeholder="token" onChange={(e) => { token.value = e.currentTarget.value.trim(); }} /></Note>}
    {!why && <form onSubmit={(e) => { e.preventDefault(); void (needsLook ? look() : give()); }}>
      <label>command<select ref={first} value={order} onChange={(e) => { setOrder(e.currentTarget.value); setPreview(null); setAnswer(null); }}>{(over ? ended : orders).map((o) => <option key={o} value={o}>{o.replace("_", " ")}</option>)}</select></label>
      <p class="dim small">{meanings[order]}</p>
      {changes && <label>changes, one key=value a line<textarea class="mono" rows={3} value={set} placeholder="rl.optimizer.lr=1e-4" onInput={(e) => { setSet(e.currentTarget.value); setPreview(null); }} /></label>}
      {order === "amend" && <label>from step (empty: the next one)<input inputMode="numeric" value={from} onInput={(e) => { setFrom(e.currentTarget.value.replace(/\D/g, "")); setPreview(null); }} /></label>}
      {(order === "restart" || order === "fork") && <label>from checkpoint (best, last or a step)<input value={from} placeholder="last" onInput={(e) => setFrom(e.currentTarget.value)} /></label>}
      {(order === "pin" || order === "unpin") && <label>step of the checkpoint (sft or a number)<input required value={from} onInput={(e) => setFrom(e.currentTarget.value)} /></label>}
      {order === "fork" && <label>id of the new run (empty: made from this one)<input value={name} maxLength={64} onInput={(e) => setName(e.currentTarget.value)} /></label>}
      {(order === "skip_stage" || order === "repeat_stage") && <label>stage<select value={stage} onChange={(e) => setStage(e.currentTarget.value)}><option value="">the current one</option>{view.plan.map((s) => <option key={s.index}>{s.name}</option>)}</select></label>}
      {["pause", "stop", "skip_stage", "restart"].includes(order) && <label class="check"><input type="checkbox" checked={now} onChange={(e) => setNow(e.currentTarget.checked)} /> now: interrupt the work in flight</label>}
      <label>reason<input required value={reason} maxLength={2000} placeholder="why; it stays in the run's event log" onInput={(e) => setReason(e.currentTarget.value)} /></label>
      <label>your name<input value={by} maxLength={200} placeholder="browser" onInput={(e) => setBy(e.currentTarget.value)} /></label>
      {confirms && <label>type <b>{run}</b> to confirm<input value={confirm} onInput={(e) => setConfirm(e.currentTarget.value)} /></label>}
      {preview && <div class="preview"><b>{order === "amend" ? `From step ${preview.step}` : `From checkpoint ${from || "last"}`}</b>
        {preview.changes.map((c) => <div key={c.key} class="mono"><span>{c.key}</span> <del>{c.from || "–"}</del> → <ins>{c.to || "–"}</ins></div>)}
        {!preview.changes.length && !preview.problems.length && <p class="dim">Nothing changes.</p>}
        {preview.warnings.map((w) => <Note key={w} kind="warn">{w}</Note>)}{preview.problems.map((w) => <Note key={w} kind="bad">{w}</Note>)}</div>}
      <button class={confirms ? "danger" : "primary"} disabled={busy || !reason.trim() || !token.value || (confirms && confirm !== run) || !!preview?.problems.length}>{needsLook ? "show what changes" : order.replace("_", " ")}</button>
    </form>}
    {answer && <Note kind={answer.bad ? "bad" : "good"}>{answer.text}</Note>}
    {status?.reason && <p class="dim">{status.state}: {status.reason}{status.by ? ` (by ${status.by})` : ""}</p>}
  </aside>;
}

// ---- overview ----------------------------------------------------------------------------

export function RunPage({ run }: { run: string }) {
  const version = useRuns([run]);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  const curve = useApi<SeriesView>(`/runs/${enc(run)}/series?keys=${enc([...mainSeries, "perf/throughput", "down_sampling/before_sampling_trace_num", "down_sampling/after_sampling_trace_num"].join(","))}`, version);
  return <><RunHead run={run} view={view.data} /><Load of={view}>{(v) => <>
    {v.reason && <Note kind={v.state === "failed" ? "bad" : "dim"}>{v.state}: {v.reason}</Note>}
    {v.fork && <p class="dim">A fork of <A href={runPath(v.fork.run_id)}>{v.fork.run_id}</A>, from step {v.fork.step ?? 0}.</p>}
    {v.children.length > 0 && <p class="dim">Forks of this run: {v.children.map((c) => <A key={c.run_id} href={runPath(c.run_id)}>{c.run_id} (step {c.fork?.step ?? 0}) </A>)}</p>}
    <Load of={curve}>{(c) => <><StepBar run={run} view={v} curve={c} /><Tiles view={v} curve={c} /></>}</Load>
    <div class="split">
      <div>{curve.data && !curve.data.steps.length ? <Early run={run} version={version} /> : <>
        <Section title="Reward, tools and Resample-on-Correct"><Overlay runs={[run]} version={version} keys={["critic/rewards/mean", "rollout/tool_error_rate", "roc/correct_tool_error_rate", "roc/kept_correct_tool_error_rate", "rollout/groups_dropped", "response_length/mean"]} onPick={(x) => go(runPath(run, "steps", x))} /></Section>
        <Section title="Stability"><Overlay runs={[run]} version={version} keys={["actor/entropy", "actor/grad_norm", "actor/pg_loss", "training/rollout_actor_logprob_diff_mean"]} onPick={(x) => go(runPath(run, "steps", x))} /></Section>
        <Section title="Where the time of a step went"><TimeBars run={run} version={version} /></Section>
      </>}</div>
      <div class="side"><Section title="Newest events"><Events run={run} version={version} most={12} /></Section>
        {v.amendments.length > 0 && <Section title="Amendments"><ul class="plain">{v.amendments.map((a) => <li key={a}>{a}</li>)}</ul></Section>}
        <Section title="Evaluations"><Evals run={run} version={version} /></Section>
        <Notes run={run} version={version} /></div>
    </div>
  </>}</Load></>;
}

// Early is what a run has done before its first step: curves of nothing would look broken.
function Early({ run, version }: { run: string; version: number }) {
  const line = useApi<TimelineView>(`/runs/${enc(run)}/timeline`, version);
  return <Section title="So far"><Load of={line}>{(v) => <><ul class="plain">{v.spans.map((s, i) => <li key={i}><b>{s.name}</b> {s.text}</li>)}</ul>
    <p class="dim">Curves begin with the first step.</p></>}</Load></Section>;
}

export const Section = ({ title, children }: { title: string; children: preact.ComponentChildren }) => <section><h2>{title}</h2>{children}</section>;

// Notes are what people say of the run: tags by which the list of runs filters, and a text.
function Notes({ run, version }: { run: string; version: number }) {
  const [saved, setSaved] = useState(0);
  const notes = useApi<RunNotes>(`/runs/${enc(run)}/notes`, version * 1000 + saved);
  const [draft, setDraft] = useState<{ tags: string; text: string } | null>(null);
  const [failure, setFailure] = useState("");
  const save = (d: { tags: string; text: string }) => send<RunNotes>(`/runs/${enc(run)}/notes`, { tags: d.tags.split(/[\s,]+/).filter(Boolean), text: d.text, time: new Date(0).toISOString() }, "PUT")
    .then(() => { setDraft(null); setFailure(""); setSaved((n) => n + 1); }, (e: Error) => setFailure(e.message));
  return <Section title="Notes"><Load of={notes}>{(v) => draft === null
    ? <>{v.tags.length > 0 && <p>{v.tags.map((t) => <span key={t}><A href={"/?filter=" + enc("tag:" + t)}><Pill kind="dim">{t}</Pill></A> </span>)}</p>}
      {v.text && <Text text={v.text} />}{!v.text && !v.tags.length && <p class="dim">None yet.</p>}
      <p class="dim small">{v.by && `${v.by}, ${clock(v.time ?? "")} `}<button class="link" onClick={() => setDraft({ tags: v.tags.join(" "), text: v.text })}>change</button></p></>
    : <form onSubmit={(e) => { e.preventDefault(); void save(draft); }}>
      <label>tags <input value={draft.tags} maxLength={900} placeholder="words with spaces between" onInput={(e) => setDraft({ ...draft, tags: e.currentTarget.value })} /></label>
      <label>note <textarea rows={5} value={draft.text} maxLength={20000} onInput={(e) => setDraft({ ...draft, text: e.currentTarget.value })} /></label>
      {failure && <Note kind="bad">{failure}</Note>}{!token.value && <p class="dim small">This needs the token.</p>}
      <p><button class="primary" type="submit">store</button> <button type="button" onClick={() => { setDraft(null); setFailure(""); }}>leave it</button></p></form>}</Load></Section>;
}

// Usage is what the run takes; it lists all objects, so it is asked for.
function Storage({ run }: { run: string }) {
  const [asked, setAsked] = useState(false);
  const u = useApi<Usage>(asked ? `/runs/${enc(run)}/du` : null);
  return <Section title="Storage">{!asked ? <p><button onClick={() => setAsked(true)}>measure</button> <span class="dim small">lists every object of the run</span></p>
    : <Load of={u}>{(v) => <div class="scroll" tabIndex={0}><table><thead><tr><th>what</th><th class="right">objects</th><th class="right">size</th><th class="right">for each</th></tr></thead>
      <tbody>{v.kinds.map((k) => <tr key={k.kind}><td>{k.kind}</td><td class="right">{k.objects}</td><td class="right">{bytes(k.bytes)}</td><td class="right">{k.unit && k.count ? `${bytes(k.bytes / k.count)} a ${k.unit}` : ""}</td></tr>)}</tbody></table></div>}</Load>}</Section>;
}

// roomFor is how many marks of two pixels stand beside each other on this screen.
const roomFor = () => Math.max(130, Math.floor((innerWidth - 60) / 2));

// StepBar has a cell for each step, coloured by its reward, with the borders of stages. Where the screen is too
// narrow for all, a cell stands for several steps, from the lowest reward at its foot to the highest at its top.
function StepBar({ run, view, curve }: { run: string; view: RunView; curve: SeriesView }) {
  const points = curve.steps.map((s, i) => [s, asNumber(curve.values["critic/rewards/mean"]?.[i])] as const);
  const values = points.map((p) => p[1]).filter((v): v is number => v !== null);
  const low = values.reduce((a, v) => Math.min(a, v), Infinity), span = values.reduce((a, v) => Math.max(a, v), -Infinity) - low || 1;
  const heat = (r: number) => String(0.12 + 0.88 * (r - low) / span);
  const each = Math.max(1, Math.ceil(view.plan.reduce((n, s) => n + s.steps, 0) / roomFor()));
  return <nav class="stepbar" aria-label="steps, coloured by reward">{view.plan.map((s) => {
    const cells = Array.from({ length: Math.ceil(s.steps / each) }, (_, k) => ({ from: s.first_step + k * each, to: Math.min(s.first_step + s.steps, s.first_step + (k + 1) * each) - 1, made: 0, low: Infinity, high: -Infinity }));
    for (const [step, r] of points) {
      const c = cells[Math.floor((step - s.first_step) / each)];
      if (!c) continue;
      c.made++;
      if (r !== null) { c.low = Math.min(c.low, r); c.high = Math.max(c.high, r); }
    }
    return <div key={s.index} class="stepbar-stage" style={{ flexGrow: s.steps }}><div class="stepbar-cells">{cells.map((c) => {
      const name = c.from === c.to ? `step ${c.from}` : `steps ${c.from}-${c.to}`, known = c.high >= c.low;
      const reward = known ? (c.low === c.high ? num(c.low) : `${num(c.low)} to ${num(c.high)}`) : "–";
      return !c.made ? <i key={c.from} class="cell none" title={`${name}: not made`} /> :
        <A key={c.from} class="cell" href={runPath(run, "steps", c.from)} title={`${name}: reward ${reward}`} aria-label={`${name}, reward ${reward}`} style={known ? { "--heat": heat(c.high), "--foot": heat(c.low) } : {}}>{""}</A>;
    })}</div><span class="stepbar-name">{s.name}</span></div>;
  })}</nav>;
}

function Tiles({ view, curve }: { view: RunView; curve: SeriesView }) {
  const n = curve.steps.length;
  if (!n) return <Note kind="dim">No step has ended yet: SFT, the first evaluation or the filter goes before it.</Note>;
  const begin = Math.max(0, curve.stages.indexOf(curve.stages[n - 1]));
  const tile = (label: string, key: string, show: (v: Num) => string, better: number) => {
    const col = curve.values[key] ?? [], now = asNumber(col[n - 1]), then = asNumber(col[begin]);
    const delta = now !== null && then !== null && begin < n - 1 ? now - then : null;
    return <div class="tile" key={key} title={key}><span class="dim">{label}</span><b>{show(now)}</b>
      <span class={delta === null || delta === 0 || better === 0 ? "dim small" : (delta > 0) === (better > 0) ? "good small" : "bad small"}>{delta === null ? "" : `${delta >= 0 ? "▲" : "▼"} ${show(Math.abs(delta))} in the stage`}</span></div>;
  };
  const acc = view.evaluations.filter((e) => e.label !== "before");
  const newest = acc[acc.length - 1], before = newest && view.evaluations.find((e) => e.stage === newest.stage && e.label === "before");
  const kept = asNumber(curve.values["down_sampling/after_sampling_trace_num"]?.[n - 1]), all = asNumber(curve.values["down_sampling/before_sampling_trace_num"]?.[n - 1]);
  return <div class="tiles">
    {tile("reward", "critic/rewards/mean", num, 1)}
    <div class="tile"><span class="dim">accuracy{newest ? `, ${view.plan[newest.stage - 1]?.name ?? "stage " + newest.stage}` : ""}</span><b>{newest ? num(newest.accuracy) : "–"}</b><span class="dim small">{newest ? (before ? `before RL ${num(before.accuracy)}` : "before RL not recorded") : "not measured yet"}</span></div>
    {tile("tool errors", "rollout/tool_error_rate", percent, -1)}
    {tile("in correct ones", "roc/correct_tool_error_rate", percent, -1)}
    {tile("response tokens", "response_length/mean", num, 0)}
    <div class="tile"><span class="dim">kept of sampled</span><b>{kept === null || all === null ? "–" : `${num(kept)}/${num(all)}`}</b><span class="dim small">trajectories of step {curve.steps[n - 1]}</span></div>
    {tile("tokens/s", "perf/throughput", num, 1)}
    {tile("seconds a step", "timing_s/step", num, -1)}
  </div>;
}

const parts: [string, string][] = [["timing_s/gen", "engine"], ["timing_s/tool", "tools"], ["timing_s/update_actor", "training"], ["timing_s/save_checkpoint", "saving"], ["timing_s/other", "other"]];
function TimeBars({ run, version }: { run: string; version: number }) {
  const [room] = useState(roomFor); // a bar that is narrower than a pixel cannot be seen
  const s = useApi<SeriesView>(`/runs/${enc(run)}/series?points=${room}&keys=${enc(parts.map((p) => p[0]).join(","))}`, version);
  return <Load of={s}>{(c) => {
    if (!c.steps.length) return <p class="dim">not recorded</p>;
    const rows = c.steps.map((_, i) => parts.map(([k]) => Math.max(0, asNumber(c.values[k]?.[i]) ?? 0)));
    const most = rows.reduce((a, r) => Math.max(a, r.reduce((x, y) => x + y, 0)), 0) || 1, W = 1000, H = 150, w = W / rows.length;
    return <figure class="chart"><svg viewBox={`0 0 ${W} ${H}`} class="bars" preserveAspectRatio="none" role="img" aria-label={`seconds of each step by what was waited for, up to ${num(most)} s`}>
      {rows.map((r, i) => { let y = H; return r.map((v, k) => { const h = H * v / most; y -= h; return h > 0 ? <rect key={i + "." + k} x={i * w + w * 0.06} y={y} width={w * 0.88} height={h} fill={colorOf(k)}><title>{`${c.thinned ? "near step" : "step"} ${c.steps[i]}: ${parts[k][1]} ${num(v)} s`}</title></rect> : null; }); })}
    </svg><figcaption class="small">{parts.map((p, k) => <span key={p[0]}><span class={"key key-" + k} /> {p[1]} </span>)}<span class="dim">tallest {num(most)} s</span></figcaption>{c.thinned && <p class="dim small">{thinned(c)}</p>}</figure>;
  }}</Load>;
}

export function Events({ run, version, most, kind }: { run: string; version: number; most?: number; kind?: string }) {
  const t = useApi<TimelineView>(`/runs/${enc(run)}/timeline`, version);
  return <Load of={t}>{(v) => {
    const marks = v.marks.filter((m) => !kind || m.kind === kind).reverse().slice(0, most);
    if (!marks.length) return <p class="dim">None yet.</p>;
    return <ul class="events">{marks.map((m, i) => <li key={i}><span class="dim small" title={clock(m.at)}>{new Date(m.at).toLocaleTimeString()}</span> <Pill kind={markKinds[m.kind] ?? "dim"}>{m.kind}</Pill> {m.text}</li>)}</ul>;
  }}</Load>;
}
const markKinds: Record<string, string> = { alert: "bad", fail: "bad", amend: "warn", pause: "warn", stop: "warn", repair: "warn", resume: "good", end: "good", stage: "run", checkpoint: "run" };

function Evals({ run, version }: { run: string; version: number }) {
  const e = useApi<EvalRow[]>(`/runs/${enc(run)}/evals`, version);
  return <Load of={e}>{(all) => { const rows = [...all].sort((a, b) => (a.stage || Infinity) - (b.stage || Infinity) || (a.set ?? "").localeCompare(b.set ?? "") || a.policy_version - b.policy_version); return rows.length ? <table class="small"><thead><tr><th>stage</th><th>when</th><th class="right">accuracy</th><th class="right">tool errors</th></tr></thead>
    <tbody>{rows.map((r) => <tr key={r.name}><td>{r.set || r.stage}</td><td><A href={runPath(run, "evals", r.name)}>{r.label}</A> <span class="dim nowrap">policy {r.policy_version}</span></td><td class="right">{num(r.accuracy)}</td><td class="right">{percent(r.tool_error_rate)}</td></tr>)}</tbody></table>
    : <p class="dim">None has ended yet.</p>; }}</Load>;
}

// ---- series ------------------------------------------------------------------------------

export function MetricsPage({ run }: { run: string }) {
  const more = query("with").split(",").filter(Boolean);
  const runs = [run, ...more.filter((r) => r !== run)];
  const version = useRuns(runs);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  const list = useApi<RunList>("/runs");
  const filter = query("q"), band = query("band") === "1";
  const names = useApi<SeriesView>(`/runs/${enc(run)}/series?points=4${filter ? "&match=" + enc(filter) : ""}`, version);
  const [weight, log, x] = [ Number(query("smooth", "0")), query("log") === "1", query("x", "steps") as "steps" | "wall" | "tokens"];
  return <><RunHead run={run} view={view.data} />
    <div class="bar">
      <input id="search" type="search" placeholder="regular expression, such as ^actor/|reward" aria-label="filter series" value={filter} maxLength={200} onInput={(e) => setQuery({ q: e.currentTarget.value })} />
      <label>smoothing <input type="range" min="0" max="0.98" step="0.02" value={weight} aria-valuetext={String(weight)} onInput={(e) => setQuery({ smooth: e.currentTarget.value === "0" ? null : e.currentTarget.value })} /> <span class="num">{weight.toFixed(2)}</span></label>
      <label>x <select value={x} onChange={(e) => setQuery({ x: e.currentTarget.value === "steps" ? null : e.currentTarget.value })}><option value="steps">step</option><option value="wall">wall time</option><option value="tokens">tokens</option></select></label>
      <label class="check"><input type="checkbox" checked={log} onChange={(e) => setQuery({ log: e.currentTarget.checked ? "1" : null })} /> log</label>
      <label class="check" title="from the lowest to the highest value of neighbouring steps"><input type="checkbox" checked={band} onChange={(e) => setQuery({ band: e.currentTarget.checked ? "1" : null })} /> band</label>
      <select aria-label="overlay a run" value="" onChange={(e) => { if (e.currentTarget.value) setQuery({ with: [...more, e.currentTarget.value].join(",") }); }}>
        <option value="">overlay a run …</option>{(list.data?.runs ?? []).filter((r) => !runs.includes(r.run_id)).map((r) => <option key={r.run_id}>{r.run_id}</option>)}</select>
      <button onClick={() => void download(`/runs/${enc(run)}/export/csv`, run + ".csv")}>CSV</button>
      <button onClick={() => void download(`/runs/${enc(run)}/export/tfevents`, "events.out.tfevents." + run)}>TensorBoard</button>
      <button title="the stored trajectories, in the columns in which verl dumps rollouts" onClick={() => void download(`/runs/${enc(run)}/export/parquet`, run + ".parquet")}>Parquet</button>
    </div>
    {runs.length > 1 && <p class="bar">{runs.map((r, i) => <span key={r}><span class={"key key-" + (i % 8)} /> {r} {i > 0 && <button class="icon" aria-label={`remove ${r}`} onClick={() => setQuery({ with: more.filter((m) => m !== r).join(",") })}>×</button>}</span>)}</p>}
    <Load of={names}>{(s) => {
      const keys = Object.keys(s.values).sort();
      const groups = new Map<string, string[]>();
      for (const k of keys) { const g = k.split("/")[0]; groups.set(g, [...(groups.get(g) ?? []), k]); }
      if (!keys.length) return <Note kind="dim">{filter ? "No series matches." : "No step has ended yet."}</Note>;
      return [...groups].map(([g, names]) => <Section key={g + runs.join()} title={g}><Overlay key={runs.join() + x} runs={runs} keys={names} version={version} weight={weight} log={log} band={band} x={x} onPick={(n) => go(runPath(run, "steps", n))} /></Section>);
    }}</Load></>;
}

// ---- time line ---------------------------------------------------------------------------

export function TimelinePage({ run }: { run: string }) {
  const version = useRuns([run]);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  const t = useApi<TimelineView>(`/runs/${enc(run)}/timeline`, version);
  return <><RunHead run={run} view={view.data} /><h2>Time line</h2><Load of={t}>{(v) => {
    const times = [...v.spans.flatMap((s) => [Date.parse(s.start), Date.parse(s.end)]), ...v.marks.map((m) => Date.parse(m.at))].filter((x) => x > 0);
    if (!times.length) return <p class="dim">Nothing has happened yet.</p>;
    const a = Math.min(...times), b = Math.max(...times), width = Math.max(1, b - a), at = (t: string) => (Date.parse(t) - a) / width * 100;
    const lanes: [string, string][] = [["sft", "SFT"], ["filter", "filter"], ["stage", "stages"], ["evaluation", "evaluations"], ["pause", "pauses"]];
    return <>
      <div class="timeline" role="list">
        {lanes.filter(([k]) => v.spans.some((s) => s.kind === k)).map(([k, name]) => <div class="lane" key={k} role="listitem"><span class="lane-name">{name}</span><div class="lane-track">
          {v.spans.filter((s) => s.kind === k).map((s, i) => {
            const bar = { key: i, class: "span span-" + k + (s.open ? " open" : ""), style: { left: `min(${at(s.start)}%, 100% - 10px)`, width: Math.max(0.4, at(s.end) - at(s.start)) + "%" }, title: `${s.name}: ${clock(s.start)}, ${seconds((Date.parse(s.end) - Date.parse(s.start)) / 1000)}${s.text ? ". " + s.text : ""}${s.link ? ". Opens the workflow in Temporal's UI" : ""}` };
            return s.link ? <a {...bar} href={s.link} rel="noreferrer" aria-label={bar.title}><i>{s.name}</i></a> : <div {...bar} tabIndex={0}><i>{s.name}</i></div>;
          })}
        </div></div>)}
        <div class="lane" role="listitem"><span class="lane-name">events</span><div class="lane-track marks">{v.marks.map((m, i) => <i key={i} class={"mark mark-" + (markKinds[m.kind] ?? "dim")} tabIndex={0} style={{ left: `min(${at(m.at)}%, 100% - 4px)` }} title={`${m.kind}: ${m.text} (${clock(m.at)})`} aria-label={`${m.kind}: ${m.text}`} role="img" />)}</div></div>
        <div class="lane axis"><span class="lane-name" /><div class="lane-track"><span>{clock(new Date(a).toISOString())}</span><span>{seconds(width / 1000)} in all</span></div></div>
      </div>
      <h2>Spans</h2><div class="scroll" tabIndex={0}><table><thead><tr><th>what</th><th>name</th><th>began</th><th class="right">took</th><th>result</th></tr></thead><tbody>{v.spans.map((s, i) => <tr key={i}><td>{s.kind}</td><td>{s.kind === "stage" && s.step ? <A href={runPath(run, "steps", s.step)}>{s.name}</A> : s.name}</td><td>{clock(s.start)}</td><td class="right">{s.open ? "goes on" : seconds((Date.parse(s.end) - Date.parse(s.start)) / 1000)}</td><td>{s.text}</td></tr>)}</tbody></table></div>
      <p class="dim small">Not recorded: {v.missing.join(", ")}.</p>
      <h2>Events</h2><Events run={run} version={version} />
    </>;
  }}</Load></>;
}

// ---- checkpoints, configuration, alerts --------------------------------------------------

export function CheckpointsPage({ run }: { run: string }) {
  const version = useRuns([run]);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  const c = useApi<CheckpointsView>(`/runs/${enc(run)}/checkpoints`, `${version}.${given.value}`);
  return <><RunHead run={run} view={view.data} /><h2>Checkpoints</h2><Load of={c}>{(v) => <>
    {!v.checkpoints.length && <p class="dim">None has been saved yet.</p>}
    {v.checkpoints.length > 0 && <div class="scroll" tabIndex={0}><table><thead><tr><th class="right">step</th><th class="right" title="counts all updates, those of SFT too">cursor</th><th class="right">size</th><th class="right">reward of the step after</th><th>why it stays</th><th>go on from it</th><th>on the command line</th></tr></thead>
      <tbody>{v.checkpoints.map((k) => <tr key={k.cursor}><td class="right">{k.step}</td><td class="right">{k.cursor}</td><td class="right">{k.damage ? <span class="bad">{k.damage}</span> : bytes(k.bytes)}</td><td class="right">{k.reward === undefined ? "–" : num(k.reward)}</td><td>{k.kept}</td><td class="nowrap"><button onClick={() => ask("fork", k.step)}>fork</button> <button onClick={() => ask(k.kept.includes("pin") ? "unpin" : "pin", k.step)}>{k.kept.includes("pin") ? "unpin" : "pin"}</button></td><td><code>temper run fork {run} --step {k.step}</code></td></tr>)}</tbody></table></div>}
    <p class="dim small">{v.folder}</p>
    <h2>Policies</h2><p>{v.policies.length ? v.policies.map((p) => "v" + p).join(", ") : "None has been published yet."}</p>
    <Storage run={run} />
  </>}</Load></>;
}

export function ConfigPage({ run }: { run: string }) {
  const step = query("step"), other = query("diff"), filter = query("q"), changed = query("changed") === "1";
  const view = useApi<RunView>(`/runs/${enc(run)}`);
  const c = useApi<ConfigView>(`/runs/${enc(run)}/config${step ? "?step=" + enc(step) : ""}`);
  const d = useApi<ConfigView>(other ? `/runs/${enc(other)}/config` : null);
  const list = useApi<RunList>("/runs");
  return <><RunHead run={run} view={view.data} /><h2>Configuration{step ? ` as of step ${step}` : ""}</h2>
    <div class="bar">
      <input id="search" type="search" placeholder="part of a key or value" aria-label="filter keys" value={filter} onInput={(e) => setQuery({ q: e.currentTarget.value })} />
      <label>as of step <input class="short" inputMode="numeric" value={step} placeholder="newest" onChange={(e) => setQuery({ step: e.currentTarget.value.replace(/\D/g, "") })} /></label>
      <label>beside <select value={other} onChange={(e) => setQuery({ diff: e.currentTarget.value })}><option value="">no other run</option>{(list.data?.runs ?? []).filter((r) => r.run_id !== run).map((r) => <option key={r.run_id}>{r.run_id}</option>)}</select></label>
      <label class="check"><input type="checkbox" checked={changed} onChange={(e) => setQuery({ changed: e.currentTarget.checked ? "1" : null })} /> only what differs from {other ? "it" : "the default"}</label>
    </div>
    <Load of={c}>{(v) => {
      const there = new Map(d.data?.keys.map((k) => [k.key, k.value]));
      const rows = v.keys.filter((k) => !filter || (k.key + " " + k.value).toLowerCase().includes(filter.toLowerCase())).filter((k) => !changed || (other ? there.get(k.key) !== k.value : k.value !== k.default));
      return <><div class="scroll" tabIndex={0}><table class="config"><thead><tr><th>key</th><th>{run}</th>{other && <th>{other}</th>}<th>default</th></tr></thead>
        <tbody>{rows.map((k) => <tr key={k.key} class={k.value === k.default ? "dim" : ""}><td class="mono">{k.key}</td><td class="mono">{k.value || '""'}{k.opened !== undefined && <Pill kind="warn" title={`the run began with ${k.opened}`}>amended, was {k.opened}</Pill>}</td>
          {other && <td class={"mono" + (there.get(k.key) === k.value ? "" : " differs")}>{there.get(k.key) ?? "–"}</td>}<td class="mono">{k.default || "–"}</td></tr>)}</tbody></table></div>
        {v.amendments.length > 0 && <><h2>Amendments</h2><ul class="plain">{v.amendments.map((a, i) => <li key={i}>from step {a.from_step}: {Object.entries(a.set ?? {}).map(([k, x]) => `${k}=${x}`).join(", ")}{a.repeat ? `stage ${a.repeat} once more` : ""}{a.reason ? ` — ${a.reason}` : ""} <span class="dim">{a.by} {a.at && clock(a.at)}</span></li>)}</ul></>}</>;
    }}</Load></>;
}

export function AlertsPage({ run }: { run: string }) {
  const version = useRuns([run]);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  return <><RunHead run={run} view={view.data} /><Load of={view}>{(v) => <>
    <h2>Rules that are broken now</h2>{v.alerts.length ? <ul class="plain">{v.alerts.map((a) => <li key={a} class="bad">⚠ {a}</li>)}</ul> : <p class="dim">None{v.step ? ` after step ${v.step}` : ""}. The limits are the keys below <A href={runPath(run, "config") + "?q=watch."}>watch</A> of the configuration.</p>}
    <h2>Firings</h2><Events run={run} version={version} kind="alert" /></>}</Load></>;
}

export function ApiPage() {
  const [doc, set] = useState<{ paths: Record<string, Record<string, { summary: string; parameters?: { name: string; in: string; description?: string }[] }>> } | null>(null);
  useEffect(() => { void fetch("/openapi.json").then((r) => r.json()).then(set); }, []);
  return <><h1>API</h1><p>The same requests that this page makes. <a href="/openapi.json">openapi.json</a> describes them (OpenAPI 3.1). Commands need <code>Authorization: Bearer TOKEN</code>.</p>
    {doc && <div class="scroll" tabIndex={0}><table><thead><tr><th>method</th><th>path</th><th>what</th></tr></thead><tbody>{Object.entries(doc.paths).flatMap(([p, ms]) => Object.entries(ms).map(([m, o]) => <tr key={p + m}><td><Pill kind={m === "get" ? "run" : "warn"}>{m.toUpperCase()}</Pill></td><td class="mono">{p}{o.parameters?.filter((x) => x.in === "query").length ? "?" + o.parameters.filter((x) => x.in === "query").map((x) => x.name).join("&") : ""}</td><td>{o.summary}</td></tr>))}</tbody></table></div>}
    <p><A href="/licences">Licences</A> of the libraries in this page.</p></>;
}

export function LicencesPage() {
  const [text, set] = useState("");
  useEffect(() => { void fetch("/licences.txt").then((r) => r.text()).then(set); }, []);
  return <><h1>Licences</h1><pre class="text">{text}</pre></>;
}
