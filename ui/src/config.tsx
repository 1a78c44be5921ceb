// The page of the configuration of a run.
import { clock, enc, query, setQuery, useApi } from "./core";
import { Load, Pill } from "./parts";
import { RunHead } from "./head";
import type { ConfigView, RunList, RunView } from "./api";

export function ConfigPage({ run }: { run: string }) {
  const step = query("step"),
    other = query("diff"),
    filter = query("q"),
    changed = query("changed") === "1";
  const view = useApi<RunView>(`/runs/${enc(run)}`);
  const c = useApi<ConfigView>(`/runs/${enc(run)}/config${step ? "?step=" + enc(step) : ""}`);
  const d = useApi<ConfigView>(other ? `/runs/${enc(other)}/config` : null);
  const list = useApi<RunList>("/runs");
  return (
    <>
      <RunHead run={run} view={view.data} />
      <h2>Configuration{step ? ` as of step ${step}` : ""}</h2>
      <div class="bar">
        <input
          id="search"
          type="search"
          placeholder="part of a key or value"
          aria-label="filter keys"
          value={filter}
          onInput={(e) => setQuery({ q: e.currentTarget.value })}
        />
        <label>
          as of step{" "}
          <input
            class="short"
            inputMode="numeric"
            value={step}
            placeholder="newest"
            onChange={(e) => setQuery({ step: e.currentTarget.value.replace(/\D/g, "") })}
          />
        </label>
        <label>
          beside{" "}
          <select value={other} onChange={(e) => setQuery({ diff: e.currentTarget.value })}>
            <option value="">no other run</option>
            {(list.data?.runs ?? [])
              .filter((r) => r.run_id !== run)
              .map((r) => (
                <option key={r.run_id}>{r.run_id}</option>
              ))}
          </select>
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={changed}
            onChange={(e) => setQuery({ changed: e.currentTarget.checked ? "1" : null })}
          />{" "}
          only what differs from {other ? "it" : "the default"}
        </label>
      </div>
      <Load of={c}>
        {(v) => {
          const there = new Map(d.data?.keys.map((k) => [k.key, k.value]));
          const rows = v.keys
            .filter((k) => !filter || (k.key + " " + k.value).toLowerCase().includes(filter.toLowerCase()))
            .filter((k) => !changed || (other ? there.get(k.key) !== k.value : k.value !== k.default));
          return (
            <>
              <div class="scroll" tabIndex={0}>
                <table class="config">
                  <thead>
                    <tr>
                      <th>key</th>
                      <th>{run}</th>
                      {other && <th>{other}</th>}
                      <th>default</th>
                    </tr>
                  </thead>
                  <tbody>
                    {rows.map((k) => (
                      <tr key={k.key} class={k.value === k.default ? "dim" : ""}>
                        <td class="mono">{k.key}</td>
                        <td class="mono">
                          {k.value || '""'}
                          {k.opened !== undefined && (
                            <Pill kind="warn" title={`the run began with ${k.opened}`}>
                              amended, was {k.opened}
                            </Pill>
                          )}
                        </td>
                        {other && (
                          <td class={"mono" + (there.get(k.key) === k.value ? "" : " differs")}>
                            {there.get(k.key) ?? "–"}
                          </td>
                        )}
                        <td class="mono">{k.default || "–"}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
              {v.amendments.length > 0 && (
                <>
                  <h2>Amendments</h2>
                  <ul class="plain">
                    {v.amendments.map((a, i) => (
                      <li key={i}>
                        from step {a.from_step}:{" "}
                        {Object.entries(a.set ?? {})
                          .map(([k, x]) => `${k}=${x}`)
                          .join(", ")}
                        {a.repeat ? `stage ${a.repeat} once more` : ""}
                        {a.reason ? ` — ${a.reason}` : ""}{" "}
                        <span class="dim">
                          {a.by} {a.at && clock(a.at)}
                        </span>
                      </li>
                    ))}
                  </ul>
                </>
              )}
            </>
          );
        }}
      </Load>
    </>
  );
}
