// A chart of series: uPlot, whose object lives in a ref and never in state, with the raw line behind
// the smoothed one, a table for those who cannot see it, and export of what is shown.
import uPlot from "uplot";
import { useEffect, useRef, useState } from "preact/hooks";
import { asNumber, dark, num, save, type Num } from "./core";

export interface Line {
  label: string;
  x: Num[];
  y: Num[];
  color?: number;
  dash?: boolean;
}

// Eight hues that differ in lightness, light and dark; the second half is dashed.
const light = ["#1f6f54", "#b3541e", "#3b5bdb", "#a61e4d", "#5f3dc4", "#8a6d00", "#0b7285", "#495057"];
const night = ["#63d2a7", "#ffa94d", "#91a7ff", "#faa2c1", "#b197fc", "#ffd43b", "#66d9e8", "#ced4da"];
export const colorOf = (i: number) => (dark.value ? night : light)[i % 8];

// smooth is an exponential moving average that does not begin at 0; gaps stay gaps.
export function smooth(values: (number | null)[], weight: number): (number | null)[] {
  let sum = 0,
    mass = 0;
  return values.map((v) => {
    if (v === null) return null;
    sum = weight * sum + (1 - weight) * v;
    mass = weight * mass + (1 - weight);
    return sum / mass;
  });
}

// spread is the lowest and the highest value around each: of twelve buckets, which is wide enough to
// be seen and narrow enough to follow a curve.
export function spread(values: (number | null)[]): [(number | null)[], (number | null)[]] {
  const reach = Math.max(1, Math.floor(values.length / 24)),
    low: (number | null)[] = [],
    high: (number | null)[] = [];
  values.forEach((v, i) => {
    const near = values.slice(Math.max(0, i - reach), i + reach + 1).filter((x): x is number => x !== null);
    low.push(v === null || !near.length ? null : Math.min(...near));
    high.push(v === null || !near.length ? null : Math.max(...near));
  });
  return [low, high];
}

function join(lines: Line[]): { xs: number[]; ys: (number | null)[][] } {
  const all = new Set<number>();
  for (const l of lines)
    for (const x of l.x) {
      const n = asNumber(x);
      if (n !== null) all.add(n);
    }
  const xs = [...all].sort((a, b) => a - b);
  const at = new Map(xs.map((x, i) => [x, i]));
  const ys = lines.map((l) => {
    const out = new Array<number | null>(xs.length).fill(null);
    l.x.forEach((x, i) => {
      const n = asNumber(x);
      if (n !== null) out[at.get(n)!] = asNumber(l.y[i]);
    });
    return out;
  });
  return { xs, ys };
}

// wholes are the distances of marks on an axis of whole numbers.
const wholes = Array.from({ length: 16 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat();

export interface ChartProps {
  title: string;
  lines: Line[];
  unit?: string;
  meaning?: string;
  weight?: number;
  log?: boolean;
  band?: boolean;
  height?: number;
  xLabel?: string;
  onPick?: (x: number) => void;
  name?: string;
  gaps?: boolean;
}

export function Chart({
  title,
  lines,
  unit,
  meaning,
  weight = 0,
  log,
  band,
  height = 170,
  xLabel = "step",
  onPick,
  name,
  gaps,
}: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [table, setTable] = useState(false);
  const [menu, setMenu] = useState(false);
  const pick = useRef(onPick);
  pick.current = onPick;
  const [ink, raw] = [dark.value, join(lines)];
  const soft = weight > 0 ? raw.ys.map((y) => smooth(y, weight)) : null;
  const whole = raw.xs.every(Number.isInteger); // there is no step 2.5
  const shape = lines.map((l) => l.label).join("\n") + `|${whole}|${weight > 0}|${!!log}|${!!band}|${ink}|${xLabel}`;
  const edges = band ? raw.ys.flatMap((y) => spread(y)) : [];
  const data = [raw.xs, ...raw.ys, ...(soft ?? []), ...edges] as uPlot.AlignedData;

  useEffect(() => {
    const el = box.current;
    if (!el || table) return;
    const style = getComputedStyle(el);
    const [text, grid] = [style.getPropertyValue("--dim").trim(), style.getPropertyValue("--line").trim()];
    const axis: uPlot.Axis = {
      stroke: text,
      grid: { stroke: grid, width: 1 },
      ticks: { stroke: grid, width: 1, size: 4 },
      font: "11px system-ui, sans-serif",
    };
    const series = (faint: boolean): uPlot.Series[] =>
      lines.map((l, i) => {
        const c = colorOf(l.color ?? i);
        return {
          label: l.label,
          stroke: faint ? c + "44" : c,
          width: faint ? 1 : 1.75,
          dash: l.dash || (l.color ?? i) >= 8 ? [6, 4] : undefined,
          points: { show: raw.xs.length <= 40 && !faint, size: 4, fill: c },
          spanGaps: !gaps,
        };
      });
    const u = new uPlot(
      {
        width: el.clientWidth || 300,
        height,
        legend: { show: false },
        padding: [8, 22, 0, 0],
        scales: {
          x: { time: false },
          y: log
            ? { distr: 3 }
            : {
                range: (_u, lo, hi) =>
                  lo === hi
                    ? [lo - Math.abs(lo || 1) * 0.1, hi + Math.abs(hi || 1) * 0.1]
                    : [lo - (hi - lo) * 0.06, hi + (hi - lo) * 0.06],
              },
        },
        cursor: { sync: { key: "temper" }, points: { size: 7 }, drag: { x: true, y: false }, y: false },
        axes: [
          { ...axis, space: 60, size: 24, gap: 3, ...(whole ? { incrs: wholes } : {}) },
          { ...axis, size: 52, gap: 4, values: (_u, v) => v.map((x) => (x === null ? "" : num(x, 3))) },
        ],
        series: [
          { label: xLabel },
          ...series(weight > 0),
          ...(weight > 0 ? series(false) : []),
          ...(band
            ? lines.flatMap(() => [
                { stroke: "transparent", points: { show: false } },
                { stroke: "transparent", points: { show: false } },
              ])
            : []),
        ],
        bands: band
          ? lines.map((l, i) => {
              const at = 1 + lines.length * (weight > 0 ? 2 : 1) + 2 * i;
              return { series: [at + 1, at], fill: colorOf(l.color ?? i) + "33" } as uPlot.Band;
            })
          : [],
        hooks: {
          setCursor: [
            (u) => {
              const out = el.querySelector(".chart-value");
              if (!out) return;
              const i = u.cursor.idx;
              if (i === null || i === undefined) {
                out.textContent = "";
                return;
              }
              const parts = lines.map(
                (l, k) =>
                  (lines.length > 1 ? l.label + " " : "") +
                  num(u.data[k + 1 + (weight > 0 ? lines.length : 0)][i] ?? null, 4),
              );
              out.textContent = `${xLabel} ${num(u.data[0][i], 6)}: ${parts.join("   ")}`;
            },
          ],
        },
      },
      data,
      el,
    );
    u.over.addEventListener("click", () => {
      if (pick.current && u.cursor.idx != null && u.select.width === 0) pick.current(u.data[0][u.cursor.idx]);
    });
    plot.current = u;
    const watch = new ResizeObserver(() => u.setSize({ width: el.clientWidth, height }));
    watch.observe(el);
    return () => {
      watch.disconnect();
      u.destroy();
      plot.current = null;
    };
  }, [shape, table, height]);

  useEffect(() => {
    const u = plot.current;
    if (!u) return;
    const { min, max } = u.scales.x,
      xs = u.data[0];
    u.setData(data);
    if (min != null && max != null && xs.length && (min > xs[0] || max < xs[xs.length - 1]))
      u.setScale("x", { min, max }); // somebody looks at a part
  }, [lines, weight, band]);

  const file = (name ?? title).replace(/[^\w.-]+/g, "_");
  const csv = () => {
    const head = [xLabel, ...lines.map((l) => l.label)]
      .map((t) => (/[",\n]/.test(t) ? `"${t.replace(/"/g, '""')}"` : t))
      .join(",");
    save(
      file + ".csv",
      new Blob(
        [head + "\n" + raw.xs.map((x, i) => [x, ...raw.ys.map((y) => y[i] ?? "")].join(",")).join("\n") + "\n"],
        { type: "text/csv" },
      ),
    );
  };
  const png = () => {
    const from = plot.current?.ctx.canvas;
    if (!from) return;
    const scale = 2,
      to = document.createElement("canvas");
    to.width = from.width * scale;
    to.height = (from.height + 28 * devicePixelRatio) * scale;
    const c = to.getContext("2d")!;
    const style = getComputedStyle(document.documentElement);
    c.fillStyle = style.getPropertyValue("--page");
    c.fillRect(0, 0, to.width, to.height);
    c.fillStyle = style.getPropertyValue("--ink");
    c.font = `600 ${14 * scale * devicePixelRatio}px system-ui, sans-serif`;
    c.fillText(title + (unit ? ` (${unit})` : ""), 12 * scale, 19 * scale * devicePixelRatio);
    c.drawImage(from, 0, 28 * devicePixelRatio * scale, from.width * scale, from.height * scale);
    to.toBlob((b) => b && save(file + ".png", b));
  };
  const svg = () =>
    save(
      file + ".svg",
      new Blob([drawSVG(title, unit ?? "", raw.xs, soft ?? raw.ys, lines)], { type: "image/svg+xml" }),
    );

  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title" title={meaning ? `${name ?? title}: ${meaning}` : (name ?? title)}>
          {title}
        </span>
        {unit && <span class="dim"> {unit}</span>}
        <span class="chart-menu">
          <button class="icon" aria-label={`export ${title}`} aria-expanded={menu} onClick={() => setMenu(!menu)}>
            ⋯
          </button>
          {menu && (
            <span class="menu" onClick={() => setMenu(false)}>
              <button onClick={() => setTable(!table)}>{table ? "chart" : "table"}</button>
              <button onClick={csv}>CSV</button>
              <button onClick={png}>PNG</button>
              <button onClick={svg}>SVG</button>
            </span>
          )}
        </span>
      </figcaption>
      {table ? (
        <div class="chart-table" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>{xLabel}</th>
                {lines.map((l) => (
                  <th key={l.label}>{l.label}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {raw.xs.map((x, i) => (
                <tr key={x}>
                  <td>{num(x, 6)}</td>
                  {raw.ys.map((y, k) => (
                    <td key={k}>{num(y[i], 5)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : (
        <div
          ref={box}
          class="chart-box"
          role="img"
          aria-label={`${title}, ${raw.xs.length} values of ${lines.length} ${lines.length === 1 ? "series" : "series side by side"}; the menu has them as a table`}
          style={{ minHeight: height + "px" }}
        >
          <div class="chart-value" />
        </div>
      )}
    </figure>
  );
}

// Spark is a small picture of a curve in a line of a table.
export function Spark({ values, label }: { values: number[]; label: string }) {
  if (values.length < 2) return <span class="dim">–</span>;
  const low = Math.min(...values),
    high = Math.max(...values),
    span = high - low || 1;
  const d = values
    .map(
      (v, i) =>
        `${i ? "L" : "M"}${((i * 96) / (values.length - 1) + 2).toFixed(1)} ${(22 - (20 * (v - low)) / span).toFixed(1)}`,
    )
    .join("");
  return (
    <svg
      class="spark"
      width="100"
      height="24"
      viewBox="0 0 100 24"
      role="img"
      aria-label={`${label} from ${num(values[0])} to ${num(values[values.length - 1])}`}
    >
      <path d={d} fill="none" stroke={colorOf(0)} stroke-width="1.5" />
    </svg>
  );
}

const escapeXML = (t: string) => t.replace(/[<>&"']/g, (c) => `&#${c.charCodeAt(0)};`);
function drawSVG(title: string, unit: string, xs: number[], ys: (number | null)[][], lines: Line[]): string {
  const W = 720,
    H = 320,
    L = 64,
    T = 40,
    B = 36,
    R = 16;
  const all = ys.flat().filter((v): v is number => v !== null);
  let lo = Math.min(...all),
    hi = Math.max(...all);
  if (!(hi > lo)) {
    lo -= 1;
    hi += 1;
  }
  const x0 = xs[0] ?? 0,
    x1 = xs[xs.length - 1] ?? 1;
  const X = (x: number) => L + ((W - L - R) * (x - x0)) / (x1 - x0 || 1),
    Y = (y: number) => H - B - ((H - T - B) * (y - lo)) / (hi - lo);
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${W}" height="${H}" font-family="sans-serif" font-size="11">`,
    `<rect width="${W}" height="${H}" fill="#fff"/>`,
    `<text x="${L}" y="20" font-size="14" font-weight="600">${escapeXML(title + (unit ? ` (${unit})` : ""))}</text>`,
  ];
  for (let i = 0; i <= 4; i++) {
    const v = lo + ((hi - lo) * i) / 4,
      x = x0 + ((x1 - x0) * i) / 4;
    out.push(
      `<path d="M${L} ${Y(v)}H${W - R}" stroke="#ddd"/><text x="${L - 6}" y="${Y(v) + 4}" text-anchor="end">${num(v)}</text><text x="${X(x)}" y="${H - 16}" text-anchor="middle">${num(Math.round(x))}</text>`,
    );
  }
  ys.forEach((y, k) => {
    let d = "",
      pen = false;
    y.forEach((v, i) => {
      if (v !== null) {
        d += `${pen ? "L" : "M"}${X(xs[i]).toFixed(1)} ${Y(v).toFixed(1)}`;
        pen = true;
      }
    });
    out.push(`<path d="${d}" fill="none" stroke="${light[(lines[k].color ?? k) % 8]}" stroke-width="1.75"/>`);
    if (lines.length > 1)
      out.push(
        `<text x="${L + 150 * k}" y="34" fill="${light[(lines[k].color ?? k) % 8]}">${escapeXML(lines[k].label)}</text>`,
      );
  });
  return out.join("\n") + "\n</svg>\n";
}
