// The overview of a run.
import { useState } from "preact/hooks";
import { type Num, asNumber, enc, go, num, percent, runPath, useApi, useRuns } from "./core";
import { A, Load, Note } from "./parts";
import { colorOf } from "./chart";
import { RunHead, Section } from "./head";
import { Notes } from "./notes";
import { Overlay, mainSeries, thinned } from "./overlay";
import { Events } from "./timeline";
import type { EvalRow, RunView, SeriesView, TimelineView } from "./api";

export function RunPage({ run }: { run: string }) {
  const version = useRuns([run]);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  const curve = useApi<SeriesView>(
    `/runs/${enc(run)}/series?keys=${enc([...mainSeries, "perf/throughput", "down_sampling/before_sampling_trace_num", "down_sampling/after_sampling_trace_num"].join(","))}`,
    version,
  );
  return (
    <>
      <RunHead run={run} view={view.data} />
      <Load of={view}>
        {(v) => (
          <>
            {v.reason && (
              <Note kind={v.state === "failed" ? "bad" : "dim"}>
                {v.state}: {v.reason}
              </Note>
            )}
            {v.fork && (
              <p class="dim">
                A fork of <A href={runPath(v.fork.run_id)}>{v.fork.run_id}</A>, from step {v.fork.step ?? 0}.
              </p>
            )}
            {v.children.length > 0 && (
              <p class="dim">
                Forks of this run:{" "}
                {v.children.map((c) => (
                  <A key={c.run_id} href={runPath(c.run_id)}>
                    {c.run_id} (step {c.fork?.step ?? 0}){" "}
                  </A>
                ))}
              </p>
            )}
            <Load of={curve}>
              {(c) => (
                <>
                  <StepBar run={run} view={v} curve={c} />
                  <Tiles view={v} curve={c} />
                </>
              )}
            </Load>
            <div class="split">
              <div>
                {curve.data && !curve.data.steps.length ? (
                  <Early run={run} version={version} />
                ) : (
                  <>
                    <Section title="Reward, tools and Resample-on-Correct">
                      <Overlay
                        runs={[run]}
                        version={version}
                        keys={[
                          "critic/rewards/mean",
                          "rollout/tool_error_rate",
                          "roc/correct_tool_error_rate",
                          "roc/kept_correct_tool_error_rate",
                          "rollout/groups_dropped",
                          "response_length/mean",
                        ]}
                        onPick={(x) => go(runPath(run, "steps", x))}
                      />
                    </Section>
                    <Section title="Stability">
                      <Overlay
                        runs={[run]}
                        version={version}
                        keys={[
                          "actor/entropy",
                          "actor/grad_norm",
                          "actor/pg_loss",
                          "training/rollout_actor_logprob_diff_mean",
                        ]}
                        onPick={(x) => go(runPath(run, "steps", x))}
                      />
                    </Section>
                    <Section title="Where the time of a step went">
                      <TimeBars run={run} version={version} />
                    </Section>
                  </>
                )}
              </div>
              <div class="side">
                <Section title="Newest events">
                  <Events run={run} version={version} most={12} />
                </Section>
                {v.amendments.length > 0 && (
                  <Section title="Amendments">
                    <ul class="plain">
                      {v.amendments.map((a) => (
                        <li key={a}>{a}</li>
                      ))}
                    </ul>
                  </Section>
                )}
                <Section title="Evaluations">
                  <Evals run={run} version={version} />
                </Section>
                <Notes run={run} version={version} />
              </div>
            </div>
          </>
        )}
      </Load>
    </>
  );
}

// Early is what a run has done before its first step: curves of nothing would look broken.
function Early({ run, version }: { run: string; version: number }) {
  const line = useApi<TimelineView>(`/runs/${enc(run)}/timeline`, version);
  return (
    <Section title="So far">
      <Load of={line}>
        {(v) => (
          <>
            <ul class="plain">
              {v.spans.map((s, i) => (
                <li key={i}>
                  <b>{s.name}</b> {s.text}
                </li>
              ))}
            </ul>
            <p class="dim">Curves begin with the first step.</p>
          </>
        )}
      </Load>
    </Section>
  );
}

// roomFor is how many marks of two pixels stand beside each other on this screen.
const roomFor = () => Math.max(130, Math.floor((innerWidth - 60) / 2));

// StepBar has a cell for each step, coloured by its reward, with the borders of stages. Where the screen is too
// narrow for all, a cell stands for several steps, from the lowest reward at its foot to the highest at its top.
function StepBar({ run, view, curve }: { run: string; view: RunView; curve: SeriesView }) {
  const points = curve.steps.map((s, i) => [s, asNumber(curve.values["critic/rewards/mean"]?.[i])] as const);
  const values = points.map((p) => p[1]).filter((v): v is number => v !== null);
  const low = values.reduce((a, v) => Math.min(a, v), Infinity),
    span = values.reduce((a, v) => Math.max(a, v), -Infinity) - low || 1;
  const heat = (r: number) => String(0.12 + (0.88 * (r - low)) / span);
  const each = Math.max(1, Math.ceil(view.plan.reduce((n, s) => n + s.steps, 0) / roomFor()));
  return (
    <nav class="stepbar" aria-label="steps, coloured by reward">
      {view.plan.map((s) => {
        const cells = Array.from({ length: Math.ceil(s.steps / each) }, (_, k) => ({
          from: s.first_step + k * each,
          to: Math.min(s.first_step + s.steps, s.first_step + (k + 1) * each) - 1,
          made: 0,
          low: Infinity,
          high: -Infinity,
        }));
        for (const [step, r] of points) {
          const c = cells[Math.floor((step - s.first_step) / each)];
          if (!c) continue;
          c.made++;
          if (r !== null) {
            c.low = Math.min(c.low, r);
            c.high = Math.max(c.high, r);
          }
        }
        return (
          <div key={s.index} class="stepbar-stage" style={{ flexGrow: s.steps }}>
            <div class="stepbar-cells">
              {cells.map((c) => {
                const name = c.from === c.to ? `step ${c.from}` : `steps ${c.from}-${c.to}`,
                  known = c.high >= c.low;
                const reward = known ? (c.low === c.high ? num(c.low) : `${num(c.low)} to ${num(c.high)}`) : "–";
                return !c.made ? (
                  <i key={c.from} class="cell none" title={`${name}: not made`} />
                ) : (
                  <A
                    key={c.from}
                    class="cell"
                    href={runPath(run, "steps", c.from)}
                    title={`${name}: reward ${reward}`}
                    aria-label={`${name}, reward ${reward}`}
                    style={known ? { "--heat": heat(c.high), "--foot": heat(c.low) } : {}}
                  >
                    {""}
                  </A>
                );
              })}
            </div>
            <span class="stepbar-name">{s.name}</span>
          </div>
        );
      })}
    </nav>
  );
}

function Tiles({ view, curve }: { view: RunView; curve: SeriesView }) {
  const n = curve.steps.length;
  if (!n) return <Note kind="dim">No step has ended yet: SFT, the first evaluation or the filter goes before it.</Note>;
  const begin = Math.max(0, curve.stages.indexOf(curve.stages[n - 1]));
  const tile = (label: string, key: string, show: (v: Num) => string, better: number) => {
    const col = curve.values[key] ?? [],
      now = asNumber(col[n - 1]),
      then = asNumber(col[begin]);
    const delta = now !== null && then !== null && begin < n - 1 ? now - then : null;
    return (
      <div class="tile" key={key} title={key}>
        <span class="dim">{label}</span>
        <b>{show(now)}</b>
        <span
          class={
            delta === null || delta === 0 || better === 0
              ? "dim small"
              : delta > 0 === better > 0
                ? "good small"
                : "bad small"
          }
        >
          {delta === null ? "" : `${delta >= 0 ? "▲" : "▼"} ${show(Math.abs(delta))} in the stage`}
        </span>
      </div>
    );
  };
  const acc = view.evaluations.filter((e) => e.label !== "before");
  const newest = acc[acc.length - 1],
    before = newest && view.evaluations.find((e) => e.stage === newest.stage && e.label === "before");
  const kept = asNumber(curve.values["down_sampling/after_sampling_trace_num"]?.[n - 1]),
    all = asNumber(curve.values["down_sampling/before_sampling_trace_num"]?.[n - 1]);
  return (
    <div class="tiles">
      {tile("reward", "critic/rewards/mean", num, 1)}
      <div class="tile">
        <span class="dim">
          accuracy{newest ? `, ${view.plan[newest.stage - 1]?.name ?? "stage " + newest.stage}` : ""}
        </span>
        <b>{newest ? num(newest.accuracy) : "–"}</b>
        <span class="dim small">
          {newest ? (before ? `before RL ${num(before.accuracy)}` : "before RL not recorded") : "not measured yet"}
        </span>
      </div>
      {tile("tool errors", "rollout/tool_error_rate", percent, -1)}
      {tile("in correct ones", "roc/correct_tool_error_rate", percent, -1)}
      {tile("response tokens", "response_length/mean", num, 0)}
      <div class="tile">
        <span class="dim">kept of sampled</span>
        <b>{kept === null || all === null ? "–" : `${num(kept)}/${num(all)}`}</b>
        <span class="dim small">trajectories of step {curve.steps[n - 1]}</span>
      </div>
      {tile("tokens/s", "perf/throughput", num, 1)}
      {tile("seconds a step", "timing_s/step", num, -1)}
    </div>
  );
}

const parts: [string, string][] = [
  ["timing_s/gen", "engine"],
  ["timing_s/tool", "tools"],
  ["timing_s/update_actor", "training"],
  ["timing_s/save_checkpoint", "saving"],
  ["timing_s/other", "other"],
];

function TimeBars({ run, version }: { run: string; version: number }) {
  const [room] = useState(roomFor); // a bar that is narrower than a pixel cannot be seen
  const s = useApi<SeriesView>(
    `/runs/${enc(run)}/series?points=${room}&keys=${enc(parts.map((p) => p[0]).join(","))}`,
    version,
  );
  return (
    <Load of={s}>
      {(c) => {
        if (!c.steps.length) return <p class="dim">not recorded</p>;
        const rows = c.steps.map((_, i) => parts.map(([k]) => Math.max(0, asNumber(c.values[k]?.[i]) ?? 0)));
        const most =
            rows.reduce(
              (a, r) =>
                Math.max(
                  a,
                  r.reduce((x, y) => x + y, 0),
                ),
              0,
            ) || 1,
          W = 1000,
          H = 150,
          w = W / rows.length;
        return (
          <figure class="chart">
            <svg
              viewBox={`0 0 ${W} ${H}`}
              class="bars"
              preserveAspectRatio="none"
              role="img"
              aria-label={`seconds of each step by what was waited for, up to ${num(most)} s`}
            >
              {rows.map((r, i) => {
                let y = H;
                return r.map((v, k) => {
                  const h = (H * v) / most;
                  y -= h;
                  return h > 0 ? (
                    <rect key={i + "." + k} x={i * w + w * 0.06} y={y} width={w * 0.88} height={h} fill={colorOf(k)}>
                      <title>{`${c.thinned ? "near step" : "step"} ${c.steps[i]}: ${parts[k][1]} ${num(v)} s`}</title>
                    </rect>
                  ) : null;
                });
              })}
            </svg>
            <figcaption class="small">
              {parts.map((p, k) => (
                <span key={p[0]}>
                  <span class={"key key-" + k} /> {p[1]}{" "}
                </span>
              ))}
              <span class="dim">tallest {num(most)} s</span>
            </figcaption>
            {c.thinned && <p class="dim small">{thinned(c)}</p>}
          </figure>
        );
      }}
    </Load>
  );
}

function Evals({ run, version }: { run: string; version: number }) {
  const e = useApi<EvalRow[]>(`/runs/${enc(run)}/evals`, version);
  return (
    <Load of={e}>
      {(all) => {
        const rows = [...all].sort(
          (a, b) =>
            (a.stage || Infinity) - (b.stage || Infinity) ||
            (a.set ?? "").localeCompare(b.set ?? "") ||
            a.policy_version - b.policy_version,
        );
        return rows.length ? (
          <table class="small">
            <thead>
              <tr>
                <th>stage</th>
                <th>when</th>
                <th class="right">accuracy</th>
                <th class="right">tool errors</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((r) => (
                <tr key={r.name}>
                  <td>{r.set || r.stage}</td>
                  <td>
                    <A href={runPath(run, "evals", r.name)}>{r.label}</A>{" "}
                    <span class="dim nowrap">policy {r.policy_version}</span>
                  </td>
                  <td class="right">{num(r.accuracy)}</td>
                  <td class="right">{percent(r.tool_error_rate)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : (
          <p class="dim">None has ended yet.</p>
        );
      }}
    </Load>
  );
}
