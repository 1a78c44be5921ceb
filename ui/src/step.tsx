// The pages of a step and of an evaluation.
import { type Num, asNumber, enc, num, percent, query, runPath, seconds, setQuery, useApi, useRuns } from "./core";
import { A, Fate, Load, Note, Pill, fateWords } from "./parts";
import { RunHead } from "./head";
import { Trajectories } from "./trajectories";
import type { Columns, RunView, StepView } from "./api";

export function StepPage({ run, step }: { run: string; step: number }) {
  const version = useRuns([run]);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  const s = useApi<StepView>(`/runs/${enc(run)}/steps/${step}`, version);
  const rows = useApi<Columns>(
    `/runs/${enc(run)}/steps/${step}/trajectories`,
    s.data?.record || (!s.data && !s.error) ? 0 : version,
  ); // those of a step that has ended stay
  const show = query("show", "trajectories");
  return (
    <>
      <RunHead run={run} view={view.data} />
      <Load of={s}>
        {(v) => {
          const m = v.record?.metrics ?? {};
          return (
            <>
              <div class="bar">
                <h2>Step {step}</h2>
                <span class="dim">{v.record?.stage_name}</span>
                <A
                  href={runPath(run, "steps", Math.max(1, step - 1))}
                  class="button"
                  aria-label="step before"
                  title="["
                >
                  ‹
                </A>
                <A
                  href={runPath(run, "steps", Math.max(step, Math.min(v.last, step + 1)))}
                  class="button"
                  aria-label="step after"
                  title="]"
                >
                  ›
                </A>
                {v.record ? (
                  <span class="dim">
                    reward {num(m["critic/rewards/mean"])}, tool errors {percent(m["rollout/tool_error_rate"])} (
                    {percent(m["roc/correct_tool_error_rate"])} in correct ones,{" "}
                    {percent(m["roc/kept_correct_tool_error_rate"])} after resampling),{" "}
                    {seconds(asNumber(m["timing_s/step"]) ?? NaN)}
                  </span>
                ) : (
                  <Pill kind="run">under way</Pill>
                )}
                {v.record?.sampled_by !== undefined && <Pill kind="warn">sampled by policy {v.record.sampled_by}</Pill>}
              </div>
              {v.texts && <Note kind="dim">{v.texts}</Note>}
              <Strip run={run} view={v} />
              <div class="tabs" role="tablist">
                {["trajectories", "groups", "numbers"].map((t) => (
                  <button
                    key={t}
                    role="tab"
                    aria-selected={show === t}
                    onClick={() => setQuery({ show: t === "trajectories" ? null : t })}
                  >
                    {t}
                  </button>
                ))}
              </div>
              {show === "trajectories" && (
                <Load of={rows}>
                  {(c) => <Trajectories columns={c} href={(p, k) => runPath(run, "steps", step, p, k)} />}
                </Load>
              )}
              {show === "groups" && (
                <div class="scroll" tabIndex={0}>
                  <table>
                    <thead>
                      <tr>
                        <th>problem</th>
                        <th>fate</th>
                        <th class="right">correct</th>
                        <th class="right">kept</th>
                        <th class="right">lost</th>
                        <th class="right">failed calls</th>
                        <th class="right">tokens</th>
                      </tr>
                    </thead>
                    <tbody>
                      {v.groups.map((g) => (
                        <tr key={g.problem}>
                          <td>
                            <A href={runPath(run, "steps", step, g.problem)}>{g.problem}</A>
                          </td>
                          <td>
                            <Fate fate={g.fate} />
                          </td>
                          <td class="right">
                            {g.correct}/{g.num}
                          </td>
                          <td class="right">{g.kept}</td>
                          <td class="right">{g.lost ?? 0}</td>
                          <td class="right">
                            {g.failed}/{g.calls}
                          </td>
                          <td class="right">{num(g.tokens)}</td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              )}
              {show === "numbers" && (
                <div class="scroll" tabIndex={0}>
                  <table>
                    <thead>
                      <tr>
                        <th>series</th>
                        <th class="right">value</th>
                      </tr>
                    </thead>
                    <tbody>
                      {Object.entries(m)
                        .sort()
                        .map(([k, x]) => (
                          <tr key={k}>
                            <td class="mono">{k}</td>
                            <td class="right">{num(x as Num, 6)}</td>
                          </tr>
                        ))}
                    </tbody>
                  </table>
                </div>
              )}
            </>
          );
        }}
      </Load>
    </>
  );
}

// Strip has a cell for each group.
function Strip({ run, view }: { run: string; view: StepView }) {
  if (!view.groups.length) return <p class="dim small">What became of the groups is not recorded.</p>;
  const count = (f: string) => view.groups.filter((g) => g.fate === f).length;
  return (
    <figure class="strip-box">
      <nav class="strip" aria-label="groups of the step">
        {view.groups.map((g) => (
          <A
            key={g.problem}
            href={runPath(run, "steps", view.step, g.problem)}
            class={"group group-" + g.fate}
            style={{ "--heat": String(g.num ? g.correct / g.num : 0) }}
            title={`${g.problem}: ${g.correct} of ${g.num} correct, ${fateWords[g.fate] ?? g.fate}`}
            aria-label={`group ${g.problem}, ${g.correct} of ${g.num} correct, ${fateWords[g.fate] ?? g.fate}`}
          >
            {""}
          </A>
        ))}
      </nav>
      <figcaption class="small">
        <span>
          <i class="group group-kept" /> {count("kept")} kept
        </span>{" "}
        <span>
          <i class="group group-all_correct" /> {count("all_correct")} all correct
        </span>{" "}
        <span>
          <i class="group group-all_wrong" /> {count("all_wrong")} all wrong
        </span>
        {count("empty") > 0 && (
          <span>
            {" "}
            <i class="group group-empty" /> {count("empty")} lost
          </span>
        )}
      </figcaption>
    </figure>
  );
}

export function EvalPage({ run, name }: { run: string; name: string }) {
  const view = useApi<RunView>(`/runs/${enc(run)}`);
  const c = useApi<Columns>(`/runs/${enc(run)}/evals/${enc(name)}`);
  return (
    <>
      <RunHead run={run} view={view.data} />
      <h2>Evaluation {name}</h2>
      <p class="dim">Accuracy, tokens and turns are of the greedy rollouts, tool errors of the sampled ones.</p>
      <Load of={c}>{(v) => <Trajectories columns={v} href={(p, k) => runPath(run, "evals", name, p, k)} />}</Load>
    </>
  );
}
