// Curves of several runs in one chart.
import { useMemo } from "preact/hooks";
import { useApi } from "./core";
import { Note } from "./parts";
import { Chart } from "./chart";
import { useMany } from "./compare";
import type { Metric, SeriesView } from "./api";

export const mainSeries = [
  "critic/rewards/mean",
  "rollout/tool_error_rate",
  "roc/correct_tool_error_rate",
  "response_length/mean",
  "actor/entropy",
  "actor/grad_norm",
  "rollout/groups_dropped",
  "timing_s/step",
];

// thinned says what stands for the steps of a long run.
export function thinned(s: SeriesView): string {
  const n = s.steps[s.steps.length - 1] - s.steps[0] + 1;
  return `Thinned: of ${n.toLocaleString()} steps, the lowest and the highest value of every ${Math.ceil((2 * n) / s.steps.length)} or so. CSV has all.`;
}

export function Overlay({
  runs,
  keys,
  version,
  weight = 0,
  log,
  band,
  x = "steps",
  cols,
  onPick,
}: {
  runs: string[];
  keys: string[];
  version: number;
  weight?: number;
  log?: boolean;
  band?: boolean;
  x?: "steps" | "wall" | "tokens";
  cols?: boolean;
  onPick?: (x: number) => void;
}) {
  const q = keys.length ? "?keys=" + keys.map(encodeURIComponent).join(",") : "";
  const all = useMany<SeriesView>(
    runs.map((r) => `/runs/${encodeURIComponent(r)}/series${q}`),
    version,
  );
  const about = useApi<Metric[]>("/series");
  const meta = useMemo(() => new Map(about.data?.map((m) => [m.name, m])), [about.data]);
  if (typeof all === "string") return <Note kind="bad">{all}</Note>;
  if (all.some((s) => !s))
    return (
      <p class="dim loading" role="status">
        loading …
      </p>
    );
  const names = keys.length ? keys : [...new Set(all.flatMap((s) => Object.keys(s!.values)))].sort();
  const longest = all
    .filter((s) => s!.thinned)
    .sort((a, b) => b!.steps[b!.steps.length - 1] - a!.steps[a!.steps.length - 1])[0];
  return (
    <>
      {longest && <p class="dim small">{thinned(longest)}</p>}
      <div class={cols === false ? "" : "charts"}>
        {names.map((name) => {
          const lines = all
            .map((s, i) => ({ label: runs[i], x: s![x], y: s!.values[name] ?? [], color: i }))
            .filter((l) => l.y.some((v) => v !== null));
          const m = meta.get(name);
          if (!lines.length)
            return (
              <figure class="chart" key={name}>
                <figcaption>
                  <span class="chart-title">{name}</span>
                </figcaption>
                <p class="dim">not recorded</p>
              </figure>
            );
          return (
            <Chart
              key={name}
              title={name}
              name={name}
              unit={m?.unit}
              meaning={m?.meaning}
              lines={lines}
              weight={weight}
              log={log}
              band={band}
              xLabel={x === "steps" ? "step" : x === "wall" ? "seconds" : "tokens"}
              onPick={x === "steps" ? onPick : undefined}
            />
          );
        })}
      </div>
    </>
  );
}
