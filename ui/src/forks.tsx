// The page of the trees of forks.
import { num, runPath, useApi, useEvery } from "./core";
import { A, Load, State } from "./parts";
import type { RunList, RunRow } from "./api";

interface Branch {
  run: RunRow;
  row: number;
  parent?: number;
  from: number;
}

// branches gives each run of a family a line, the parent above its forks.
function branches(runs: RunRow[]): Branch[][] {
  const byID = new Map(runs.map((r) => [r.run_id, r])),
    out: Branch[][] = [],
    seen = new Set<string>();
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
  return (
    <>
      <h1>Forks</h1>
      <Load of={list}>
        {(l) => {
          const families = branches(l.runs);
          if (!families.length)
            return (
              <div class="empty">
                <p>No run of this store began with a checkpoint of another. This makes one:</p>
                <pre class="code">temper run fork RUN --step best --set rl.optimizer.lr=1e-4</pre>
              </div>
            );
          return families.map((f) => {
            const steps = Math.max(1, ...f.map((b) => Math.max(b.run.num_steps, b.run.step))),
              H = 44,
              W = 1000;
            const x = (step: number) => 8 + ((W - 16) * step) / steps,
              y = (row: number) => 16 + row * H;
            return (
              <figure class="card tree" key={f[0].run.run_id}>
                <div class="tree-box" style={{ height: H * f.length + "px" }}>
                  <svg
                    viewBox={`0 0 ${W} ${H * f.length}`}
                    preserveAspectRatio="none"
                    role="img"
                    aria-label={`${f.length} runs, the forks of ${f[0].run.run_id}`}
                  >
                    {f.map((b) => (
                      <g key={b.run.run_id}>
                        {b.parent !== undefined && (
                          <path class="tree-link" d={`M${x(b.from)} ${y(b.parent)}V${y(b.row)}`} />
                        )}
                        <path class="tree-rest" d={`M${x(b.from)} ${y(b.row)}H${x(b.run.num_steps || b.run.step)}`} />
                        <path class="tree-made" d={`M${x(b.from)} ${y(b.row)}H${x(Math.max(b.run.step, b.from))}`} />
                      </g>
                    ))}
                  </svg>
                  {f.map((b) => (
                    <div
                      key={b.run.run_id}
                      class="tree-label"
                      style={{ top: y(b.row) + 3 + "px", left: (100 * x(Math.min(b.from, steps * 0.6))) / W + "%" }}
                    >
                      <A href={runPath(b.run.run_id)}>{b.run.run_id}</A> <State state={b.run.state} lost={b.run.lost} />{" "}
                      <span class="dim small">
                        {b.parent !== undefined ? `from step ${b.from}, ` : ""}step {b.run.step}/{b.run.num_steps},
                        reward {num(b.run.reward)}
                      </span>
                    </div>
                  ))}
                </div>
              </figure>
            );
          });
        }}
      </Load>
    </>
  );
}
