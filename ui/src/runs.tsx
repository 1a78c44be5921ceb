// The table of runs.
import { useEffect, useState } from "preact/hooks";
import { age, go, num, percent, query, runPath, setQuery, useApi, useEvery } from "./core";
import { A, Load, Note, State } from "./parts";
import { Spark } from "./chart";
import type { RunList, RunRow } from "./api";

// A filter is words: state:running, a key of the configuration with =, < or >, or a part of a name.
export function matches(r: RunRow, filter: string): boolean {
  return filter
    .split(/\s+/)
    .filter(Boolean)
    .every((word) => {
      const m = /^([\w.[\]-]+)(:|=|<=|>=|<|>)(.*)$/.exec(word);
      if (!m) return (r.run_id + " " + (r.name ?? "")).toLowerCase().includes(word.toLowerCase());
      const [, key, sign, want] = m;
      const own: Record<string, unknown> = {
        state: r.lost ? "lost" : r.state,
        reward: r.reward,
        step: r.step,
        seed: r.seed,
        name: r.name,
        stage: r.stage,
        tool_errors: r.tool_errors,
      };
      const keys = r.keys ?? {};
      const full = key in own ? undefined : key in keys ? key : Object.keys(keys).find((k) => k.endsWith("." + key));
      const have = key in own ? own[key] : full === undefined ? undefined : keys[full];
      if (key === "tag") return (r.tags ?? []).some((t) => t.toLowerCase() === want.toLowerCase());
      if (have === undefined || have === null) return false;
      if (sign === ":" || sign === "=")
        return String(have).toLowerCase() === want.toLowerCase() || (want !== "" && Number(have) === Number(want));
      const [a, b] = [Number(have), Number(want)];
      return sign === "<" ? a < b : sign === ">" ? a > b : sign === "<=" ? a <= b : a >= b;
    });
}

// began is when a run began; one that the server alone knows is the newest.
const began = (r: RunRow) =>
  r.started && !r.started.startsWith("0001") ? r.started : r.state === "damaged" || r.refused ? "" : "9";

type Order = [string, string, (r: RunRow) => string | number];

const orders: Order[] = [
  ["started", "age", (r) => began(r)],
  ["run", "run", (r) => r.run_id],
  ["state", "state", (r) => r.state],
  ["step", "steps", (r) => r.step],
  ["reward", "reward", (r) => r.reward ?? -Infinity],
  ["errors", "tool errors", (r) => r.tool_errors ?? -1],
];

const rowsAtOnce = 250; // of a table that is no grid: more take the browser seconds

export function RunsPage() {
  const [late, setLate] = useState(0),
    every = useEvery(4000);
  const list = useApi<RunList>("/runs", every * 1000 + late);
  const filling = list.data?.filling ?? 0;
  useEffect(() => {
    if (filling > 0 && !list.loading) {
      const t = setTimeout(() => setLate((n) => n + 1), 400);
      return () => clearTimeout(t);
    }
  }, [list.data, list.loading]);
  const [most, setMost] = useState(rowsAtOnce);
  const [filter, sort, tree, extra] = [
    query("filter"),
    query("sort", "-started"),
    query("tree") === "1",
    query("columns").split(",").filter(Boolean),
  ];
  const [picked, setPicked] = useState<string[]>([]);
  return (
    <>
      <h1>Runs</h1>
      <Load of={list}>
        {(l) => {
          if (!l.runs.length)
            return (
              <div class="empty">
                <p>No run is in this store yet. Start the demo, and this page fills while it goes on:</p>
                <pre class="code">./task demo</pre>
                <p>or submit a configuration of yours:</p>
                <pre class="code">temper run submit configs/demo.yaml</pre>
              </div>
            );
          const down = sort.startsWith("-"),
            of = (orders.find((o) => o[0] === sort.replace("-", "")) ?? orders[0])[2];
          let rows = l.runs.filter((r) => matches(r, filter));
          rows = [...rows].sort((a, b) => {
            const [x, y] = [of(a), of(b)];
            return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
          });
          const depth = new Map<string, number>();
          if (tree) rows = asTree(rows, depth);
          const keys = [...new Set(l.runs.flatMap((r) => Object.keys(r.keys ?? {})))].sort();
          const head = (name: string, label: string, right = false) => (
            <th
              class={right ? "right" : ""}
              aria-sort={sort.replace("-", "") === name ? (down ? "descending" : "ascending") : undefined}
            >
              <button class="head" onClick={() => setQuery({ sort: sort === "-" + name ? name : "-" + name })}>
                {label}
                {sort.replace("-", "") === name ? (down ? " ▾" : " ▴") : ""}
              </button>
            </th>
          );
          return (
            <>
              <div class="bar">
                <input
                  id="search"
                  type="search"
                  placeholder="name state:done tag:x reward>0.5"
                  aria-label="filter runs"
                  value={filter}
                  onInput={(e) => setQuery({ filter: e.currentTarget.value })}
                />
                <label class="check">
                  <input
                    type="checkbox"
                    checked={tree}
                    onChange={(e) => setQuery({ tree: e.currentTarget.checked ? "1" : null })}
                  />{" "}
                  forks under their parent
                </label>
                <select
                  aria-label="add a column"
                  value=""
                  onChange={(e) => {
                    if (e.currentTarget.value) setQuery({ columns: [...extra, e.currentTarget.value].join(",") });
                  }}
                >
                  <option value="">add a column …</option>
                  {keys
                    .filter((k) => !extra.includes(k))
                    .map((k) => (
                      <option key={k}>{k}</option>
                    ))}
                </select>
                <button
                  class="primary"
                  disabled={picked.length < 2}
                  onClick={() => go("/compare?runs=" + picked.map(encodeURIComponent).join(","))}
                >
                  {picked.length < 2 ? "tick two to compare" : `compare ${picked.length}`}
                </button>
              </div>
              {l.remark && <p class="dim small">{l.remark}</p>}
              {!rows.length && <Note kind="dim">No run matches the filter.</Note>}
              <div class="scroll" tabIndex={0}>
                <table class="runs">
                  <thead>
                    <tr>
                      <th>
                        <span class="sr">compare</span>
                      </th>
                      {head("run", "run")}
                      {head("state", "state")}
                      <th>stage</th>
                      {head("step", "steps", true)}
                      <th>reward by step</th>
                      {head("reward", "reward", true)}
                      <th>accuracy by stage</th>
                      {head("errors", "tool errors", true)}
                      <th class="right">tok/s</th>
                      {head("started", "age")}
                      <th class="right">seed</th>
                      {extra.map((k) => (
                        <th key={k}>
                          {k.split(".").pop()}{" "}
                          <button
                            class="icon"
                            aria-label={`remove column ${k}`}
                            title={k}
                            onClick={() => setQuery({ columns: extra.filter((x) => x !== k).join(",") })}
                          >
                            ×
                          </button>
                        </th>
                      ))}
                    </tr>
                  </thead>
                  <tbody>
                    {rows.slice(0, most).map((r) => (
                      <tr key={r.run_id}>
                        <td>
                          <input
                            type="checkbox"
                            aria-label={`compare ${r.run_id}`}
                            checked={picked.includes(r.run_id)}
                            onChange={(e) =>
                              setPicked(
                                e.currentTarget.checked ? [...picked, r.run_id] : picked.filter((x) => x !== r.run_id),
                              )
                            }
                          />
                        </td>
                        <td class="name" style={{ paddingLeft: 8 + 18 * (depth.get(r.run_id) ?? 0) + "px" }}>
                          {(depth.get(r.run_id) ?? 0) > 0 && (
                            <span class="dim" aria-label="fork">
                              ↳{" "}
                            </span>
                          )}
                          <A href={runPath(r.run_id)}>{r.run_id}</A>
                          {r.name && r.name !== r.run_id && <span class="dim"> {r.name}</span>}
                          {(r.tags ?? []).map((t) => (
                            <span key={t}>
                              {" "}
                              <button
                                class="pill pill-dim"
                                title={`show the runs with the tag ${t}`}
                                onClick={() => setQuery({ filter: "tag:" + t })}
                              >
                                {t}
                              </button>
                            </span>
                          ))}
                          {r.trouble && (
                            <span class="bad" title={r.trouble}>
                              {" "}
                              ⚠ <span class="sr">{r.trouble}</span>
                            </span>
                          )}
                          {r.state === "damaged" && <div class="bad small">{r.reason}</div>}
                          {r.state !== "damaged" && r.problem && <div class="bad small">{r.problem}</div>}
                        </td>
                        <td>
                          <State state={r.state} lost={r.lost} />
                        </td>
                        <td>{r.stage ?? ""}</td>
                        <td class="right">{r.num_steps ? `${r.step}/${r.num_steps}` : "–"}</td>
                        <td>
                          <Spark values={r.rewards ?? []} label="reward" />
                        </td>
                        <td class="right">{num(r.reward)}</td>
                        <td class="nowrap">
                          {(r.stages ?? []).map((s) => (
                            <span key={s.name} class="acc" title={s.name}>
                              {num(s.before, 2)}→{num(s.after, 2)}
                            </span>
                          ))}
                          {!r.stages?.length && <span class="dim">–</span>}
                        </td>
                        <td class="right">{percent(r.tool_errors)}</td>
                        <td class="right">{num(r.throughput)}</td>
                        <td class="nowrap" title={r.started}>
                          {age(r.started)}
                        </td>
                        <td class="right">{r.seed}</td>
                        {extra.map((k) => (
                          <td key={k}>{r.keys?.[k] ?? ""}</td>
                        ))}
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
              {rows.length > most && (
                <p>
                  <button onClick={() => setMost(most + 1000)}>show more</button>{" "}
                  <span class="dim">
                    {most} of {rows.length.toLocaleString()} runs
                  </span>
                </p>
              )}
              {filling > 0 && (
                <p class="dim small" role="status">
                  {filling} rows are being filled.
                </p>
              )}
            </>
          );
        }}
      </Load>
    </>
  );
}

// asTree puts each fork under the run that it began with.
function asTree(rows: RunRow[], depth: Map<string, number>): RunRow[] {
  const ids = new Set(rows.map((r) => r.run_id)),
    out: RunRow[] = [],
    seen = new Set<string>();
  const add = (r: RunRow, d: number) => {
    if (seen.has(r.run_id)) return;
    seen.add(r.run_id);
    depth.set(r.run_id, d);
    out.push(r);
    for (const c of rows) if (c.fork?.run_id === r.run_id) add(c, d + 1);
  };
  for (const r of rows) if (!r.fork || !ids.has(r.fork.run_id)) add(r, 0);
  for (const r of rows) add(r, 0);
  return out;
}
