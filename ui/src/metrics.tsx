// The page of the series of a run.
import { download, enc, go, query, runPath, setQuery, useApi, useRuns } from "./core";
import { Load, Note } from "./parts";
import { RunHead, Section } from "./head";
import { Overlay } from "./overlay";
import type { RunList, RunView, SeriesView } from "./api";

export function MetricsPage({ run }: { run: string }) {
  const more = query("with").split(",").filter(Boolean);
  const runs = [run, ...more.filter((r) => r !== run)];
  const version = useRuns(runs);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  const list = useApi<RunList>("/runs");
  const filter = query("q"),
    band = query("band") === "1";
  const names = useApi<SeriesView>(
    `/runs/${enc(run)}/series?points=4${filter ? "&match=" + enc(filter) : ""}`,
    version,
  );
  const [weight, log, x] = [
    Number(query("smooth", "0")),
    query("log") === "1",
    query("x", "steps") as "steps" | "wall" | "tokens",
  ];
  return (
    <>
      <RunHead run={run} view={view.data} />
      <div class="bar">
        <input
          id="search"
          type="search"
          placeholder="regular expression, such as ^actor/|reward"
          aria-label="filter series"
          value={filter}
          maxLength={200}
          onInput={(e) => setQuery({ q: e.currentTarget.value })}
        />
        <label>
          smoothing{" "}
          <input
            type="range"
            min="0"
            max="0.98"
            step="0.02"
            value={weight}
            aria-valuetext={String(weight)}
            onInput={(e) => setQuery({ smooth: e.currentTarget.value === "0" ? null : e.currentTarget.value })}
          />{" "}
          <span class="num">{weight.toFixed(2)}</span>
        </label>
        <label>
          x{" "}
          <select
            value={x}
            onChange={(e) => setQuery({ x: e.currentTarget.value === "steps" ? null : e.currentTarget.value })}
          >
            <option value="steps">step</option>
            <option value="wall">wall time</option>
            <option value="tokens">tokens</option>
          </select>
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={log}
            onChange={(e) => setQuery({ log: e.currentTarget.checked ? "1" : null })}
          />{" "}
          log
        </label>
        <label class="check" title="from the lowest to the highest value of neighbouring steps">
          <input
            type="checkbox"
            checked={band}
            onChange={(e) => setQuery({ band: e.currentTarget.checked ? "1" : null })}
          />{" "}
          band
        </label>
        <select
          aria-label="overlay a run"
          value=""
          onChange={(e) => {
            if (e.currentTarget.value) setQuery({ with: [...more, e.currentTarget.value].join(",") });
          }}
        >
          <option value="">overlay a run …</option>
          {(list.data?.runs ?? [])
            .filter((r) => !runs.includes(r.run_id))
            .map((r) => (
              <option key={r.run_id}>{r.run_id}</option>
            ))}
        </select>
        <button onClick={() => void download(`/runs/${enc(run)}/export/csv`, run + ".csv")}>CSV</button>
        <button onClick={() => void download(`/runs/${enc(run)}/export/tfevents`, "events.out.tfevents." + run)}>
          TensorBoard
        </button>
        <button
          title="the stored trajectories, in the columns in which verl dumps rollouts"
          onClick={() => void download(`/runs/${enc(run)}/export/parquet`, run + ".parquet")}
        >
          Parquet
        </button>
      </div>
      {runs.length > 1 && (
        <p class="bar">
          {runs.map((r, i) => (
            <span key={r}>
              <span class={"key key-" + (i % 8)} /> {r}{" "}
              {i > 0 && (
                <button
                  class="icon"
                  aria-label={`remove ${r}`}
                  onClick={() => setQuery({ with: more.filter((m) => m !== r).join(",") })}
                >
                  ×
                </button>
              )}
            </span>
          ))}
        </p>
      )}
      <Load of={names}>
        {(s) => {
          const keys = Object.keys(s.values).sort();
          const groups = new Map<string, string[]>();
          for (const k of keys) {
            const g = k.split("/")[0];
            groups.set(g, [...(groups.get(g) ?? []), k]);
          }
          if (!keys.length) return <Note kind="dim">{filter ? "No series matches." : "No step has ended yet."}</Note>;
          return [...groups].map(([g, names]) => (
            <Section key={g + runs.join()} title={g}>
              <Overlay
                key={runs.join() + x}
                runs={runs}
                keys={names}
                version={version}
                weight={weight}
                log={log}
                band={band}
                x={x}
                onPick={(n) => go(runPath(run, "steps", n))}
              />
            </Section>
          ));
        }}
      </Load>
    </>
  );
}
