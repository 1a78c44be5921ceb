// The page that compares runs.
import { asNumber, num, query, runPath, seconds, setQuery, useApi, useRuns } from "./core";
import { A, Note, State } from "./parts";
import { Overlay, mainSeries } from "./overlay";
import type { ConfigView, RunView, StepView } from "./api";

export function ComparePage() {
  const runs = query("runs").split(",").filter(Boolean);
  const version = useRuns(runs);
  if (runs.length < 2)
    return (
      <>
        <h1>Compare</h1>
        <Note kind="dim">
          Tick two or more runs on <A href="/">the list of runs</A>.
        </Note>
      </>
    );
  return (
    <>
      <h1>Compare</h1>
      <p class="bar">
        {runs.map((r, i) => (
          <span key={r}>
            <span class={"key key-" + (i % 8)} /> <A href={runPath(r)}>{r}</A>
          </span>
        ))}
      </p>
      <CompareConfigs runs={runs} />
      <Overlay runs={runs} keys={mainSeries} version={version} />
      <Outcomes runs={runs} version={version} />
      <SameProblem runs={runs} />
    </>
  );
}

export function useMany<T>(paths: string[], version: number): (T | undefined)[] | string {
  // Each run has a hook of its own; the number of runs changes with the address alone, which remounts the page.
  const all = paths.map((p) => useApi<T>(p, version));
  const failed = all.find((a) => a.error && !a.data);
  return failed ? failed.error!.message : all.map((a) => a.data);
}

function CompareConfigs({ runs }: { runs: string[] }) {
  const all = useMany<ConfigView>(
    runs.map((r) => `/runs/${encodeURIComponent(r)}/config`),
    0,
  );
  if (typeof all === "string") return <Note kind="bad">{all}</Note>;
  const keys = new Set(all.flatMap((c) => c?.keys.map((k) => k.key) ?? []));
  const of = all.map((c) => new Map(c?.keys.map((k) => [k.key, k.value])));
  const differing = [...keys]
    .filter((k) => !k.startsWith("amendments") && new Set(of.map((m) => m.get(k) ?? "")).size > 1)
    .sort();
  return (
    <section>
      <h2>Keys that differ</h2>
      {!differing.length && <p class="dim">The configurations are equal, amendments included.</p>}
      {differing.length > 0 && (
        <div class="scroll" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>key</th>
                {runs.map((r) => (
                  <th key={r}>{r}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {differing.map((k) => (
                <tr key={k}>
                  <td class="mono">{k}</td>
                  {of.map((m, i) => (
                    <td key={i} class="mono">
                      {m.get(k) ?? "–"}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

// SameProblem shows one group of one step in each run.
function SameProblem({ runs }: { runs: string[] }) {
  const step = query("step"),
    problem = query("problem");
  const groups = runs.map((r) =>
    useApi<StepView>(step ? `/runs/${encodeURIComponent(r)}/steps/${encodeURIComponent(step)}` : null),
  );
  const known = [...new Set(groups.flatMap((g) => g.data?.groups.map((x) => x.problem) ?? []))].sort();
  return (
    <section>
      <h2>The same problem</h2>
      <div class="bar">
        <label>
          step{" "}
          <input
            class="short"
            inputMode="numeric"
            value={step}
            onChange={(e) => setQuery({ step: e.currentTarget.value.replace(/\D/g, ""), problem: null })}
          />
        </label>
        {step && (
          <label>
            problem{" "}
            <select value={problem} onChange={(e) => setQuery({ problem: e.currentTarget.value })}>
              <option value="">choose …</option>
              {known.map((p) => (
                <option key={p}>{p}</option>
              ))}
            </select>
          </label>
        )}
      </div>
      {step && problem && (
        <div class="scroll" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>run</th>
                <th class="right">correct</th>
                <th class="right">kept</th>
                <th class="right">failed calls</th>
                <th class="right">tokens</th>
              </tr>
            </thead>
            <tbody>
              {runs.map((r, i) => {
                const g = groups[i].data?.groups.find((x) => x.problem === problem);
                return (
                  <tr key={r}>
                    <td>
                      <span class={"key key-" + (i % 8)} />{" "}
                      {g ? <A href={runPath(r, "steps", step, problem)}>{r}</A> : r}
                    </td>
                    {g ? (
                      <>
                        <td class="right">
                          {g.correct}/{g.num}
                        </td>
                        <td class="right">{g.kept}</td>
                        <td class="right">
                          {g.failed}/{g.calls}
                        </td>
                        <td class="right">{num(g.tokens)}</td>
                      </>
                    ) : (
                      <td colSpan={4} class="dim">
                        {groups[i].error?.message ?? "not sampled in this step"}
                      </td>
                    )}
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      {!step && <p class="dim small">Name a step: runs of one seed sample the same problems in it.</p>}
    </section>
  );
}

function Outcomes({ runs, version }: { runs: string[]; version: number }) {
  const all = useMany<RunView>(
    runs.map((r) => `/runs/${encodeURIComponent(r)}`),
    version,
  );
  if (typeof all === "string") return <Note kind="bad">{all}</Note>;
  const stages = [...new Set(all.flatMap((r) => r?.summary?.stages.map((s) => s.name) ?? []))];
  return (
    <section>
      <h2>Outcomes</h2>
      <div class="scroll" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th>run</th>
              <th>state</th>
              <th class="right">steps</th>
              <th class="right">wall</th>
              {stages.map((s) => (
                <th key={s}>{s}: accuracy before, after</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {all.map((r, i) => (
              <tr key={runs[i]}>
                <td>{runs[i]}</td>
                <td>{r && <State state={r.state} />}</td>
                <td class="right">{r?.step}</td>
                <td class="right">{r?.summary ? seconds(r.summary.wall_seconds) : "–"}</td>
                {stages.map((s) => {
                  const st = r?.summary?.stages.find((x) => x.name === s);
                  return (
                    <td key={s}>
                      {st
                        ? `${num(asNumber(st.accuracy_before), 3)} → ${num(asNumber(st.accuracy_after), 3)}`
                        : "not recorded"}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
