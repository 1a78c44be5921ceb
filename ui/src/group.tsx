// The page of a group.
import { enc, go, num, query, runPath, setQuery, shown, useApi } from "./core";
import { A, Fate, Load, Note, Text } from "./parts";
import { colorOf } from "./chart";
import { RunHead } from "./head";
import type { GroupView, HistoryView, RunView } from "./api";

const fateOrder = ["kept", "dropped", "uniform", "excluded", ""];

export function GroupPage({ run, step, problem }: { run: string; step: number; problem: string }) {
  const view = useApi<RunView>(`/runs/${enc(run)}`);
  const g = useApi<GroupView>(`/runs/${enc(run)}/steps/${step}/${enc(problem)}`);
  const side = query("view") === "columns";
  return (
    <>
      <RunHead run={run} view={view.data} />
      <Load of={g}>
        {(v) => {
          const rows = [...v.rows].sort(
            (a, b) =>
              fateOrder.indexOf(a.fate) - fateOrder.indexOf(b.fate) || b.reward - a.reward || a.rollout - b.rollout,
          );
          const at = v.problems.indexOf(problem);
          const near = (d: number) => v.problems[at + d];
          return (
            <>
              <div class="bar">
                <h2>
                  <A href={runPath(run, "steps", step)}>Step {step}</A> · {problem}
                </h2>
                {v.fate && <Fate fate={v.fate} />}
                {near(-1) && (
                  <A class="button" href={runPath(run, "steps", step, near(-1))} aria-label="group before">
                    ‹
                  </A>
                )}
                {near(1) && (
                  <A class="button" href={runPath(run, "steps", step, near(1))} aria-label="group after">
                    ›
                  </A>
                )}
                <label class="check">
                  <input
                    type="checkbox"
                    checked={side}
                    onChange={(e) => setQuery({ view: e.currentTarget.checked ? "columns" : null })}
                  />{" "}
                  side by side
                </label>
              </div>
              <div class="problem">
                <Text text={v.problem.prompt ?? ""} empty="The prompt is not recorded." />
                <p>
                  <span class="dim">key</span> <code>{shown(v.problem.answer ?? "") || "not recorded"}</code>
                  {v.problem.level ? <span class="dim"> level {v.problem.level}</span> : null}
                  {v.problem.env && <span class="dim"> {v.problem.env}</span>}
                </p>
              </div>
              <p class="why">{v.why}</p>
              <OtherSteps run={run} step={step} problem={problem} />
              {v.source === "trajectories" && (
                <p class="dim small">
                  No index of this step is recorded; fates are those of the samples that the trainer got.
                </p>
              )}
              {v.texts && <Note kind="dim">{v.texts}</Note>}
              <div class={side ? "rollouts side-by-side" : "rollouts"}>
                {rows.map((r) => (
                  <article key={r.rollout} class={"rollout rollout-" + r.fate}>
                    <header>
                      <A href={runPath(run, "steps", step, problem, r.rollout)}>rollout {r.rollout}</A>{" "}
                      <Fate fate={r.fate} /> <span class={r.reward > 0 ? "good" : "bad"}>reward {num(r.reward)}</span>{" "}
                      {r.advantage !== undefined && r.advantage !== null && (
                        <span class="dim">
                          advantage {r.advantage > 0 ? "+" : ""}
                          {num(r.advantage)}
                        </span>
                      )}
                      <span class="dim">
                        {r.turns} turns, {r.failed_calls}/{r.calls} calls failed, {r.response_tokens} tokens,{" "}
                        {r.stop_reason}
                      </span>
                    </header>
                    <p class="why">{r.why}</p>
                    {side && <Text text={r.end} mono empty="The text is not in the store." />}
                    {!side && r.answer && (
                      <p class="dim small">
                        answer <code>{shown(r.answer)}</code>
                      </p>
                    )}
                  </article>
                ))}
              </div>
            </>
          );
        }}
      </Load>
    </>
  );
}

// OtherSteps has a dot for each step in which the problem was sampled, as high as the share of correct rollouts.
function OtherSteps({ run, step, problem }: { run: string; step: number; problem: string }) {
  const asked = query("history") === "1";
  const h = useApi<HistoryView>(asked ? `/runs/${enc(run)}/problems/${enc(problem)}` : null);
  if (!asked)
    return (
      <p>
        <button onClick={() => setQuery({ history: "1" })}>in other steps</button>
      </p>
    );
  if (!h.data)
    return h.error ? (
      <Note kind="bad">{h.error.message}</Note>
    ) : (
      <p class="dim loading" role="status">
        loading …
      </p>
    );
  const W = 1000,
    H = 60,
    last = Math.max(2, h.data.last),
    x = (n: number) => 12 + ((W - 24) * (n - 1)) / (last - 1),
    y = (share: number) => H - 12 - (H - 24) * share;
  return (
    <figure class="chart dots">
      <svg
        viewBox={`0 0 ${W} ${H}`}
        class="bars"
        role="img"
        aria-label={`share of correct rollouts of this problem in ${h.data.steps.length} steps`}
      >
        <polyline
          fill="none"
          stroke="var(--line)"
          points={h.data.steps.map((s) => `${x(s.step)},${y(s.num ? s.correct / s.num : 0)}`).join(" ")}
        />
        {h.data.steps.map((s) => (
          <circle
            key={s.step}
            cx={x(s.step)}
            cy={y(s.num ? s.correct / s.num : 0)}
            r={s.step === step ? 8 : 5}
            fill={colorOf(s.kept ? 0 : 1)}
            style={{ cursor: "pointer" }}
            onClick={() => go(runPath(run, "steps", s.step, problem))}
          >
            <title>{`step ${s.step}: ${s.correct} of ${s.num} correct, ${s.kept} kept`}</title>
          </circle>
        ))}
      </svg>
      <figcaption class="small">
        The same problem in other steps:{" "}
        {h.data.steps.map((s) => (
          <span key={s.step}>
            <A href={runPath(run, "steps", s.step, problem)} class={s.step === step ? "here" : ""}>
              step {s.step}
            </A>{" "}
            <span class="dim">
              {s.correct}/{s.num}
            </span>{" "}
          </span>
        ))}
        {h.data.left > 0 && <span class="dim">({h.data.left} more steps are not read yet)</span>}
      </figcaption>
    </figure>
  );
}
