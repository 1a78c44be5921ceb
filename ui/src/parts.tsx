// Parts of pages: links, states of loading, texts of models, a table that shows a part of its rows.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { go, shown, type Loaded } from "./core";

export function A({
  href,
  children,
  ...rest
}: { href: string; children: ComponentChildren } & {
  class?: string;
  title?: string;
  tabIndex?: number;
  style?: Record<string, string>;
  "aria-label"?: string;
  "aria-current"?: "page";
}) {
  return (
    <a
      href={href}
      {...rest}
      onClick={(e) => {
        if (e.metaKey || e.ctrlKey || e.shiftKey || e.button !== 0) return;
        e.preventDefault();
        go(href);
      }}
    >
      {children}
    </a>
  );
}

export const Pill = ({ kind, children, title }: { kind: string; children: ComponentChildren; title?: string }) => (
  <span class={"pill pill-" + kind} title={title}>
    {children}
  </span>
);

const stateKinds: Record<string, string> = {
  done: "good",
  training: "run",
  evaluating: "run",
  sft: "run",
  preparing: "run",
  paused: "warn",
  pausing: "warn",
  failed: "bad",
  stuck: "bad",
  lost: "bad",
  damaged: "bad",
  stopped: "dim",
  stopping: "warn",
};
export const State = ({ state, lost }: { state: string; lost?: boolean }) => (
  <Pill
    kind={lost ? "bad" : (stateKinds[state] ?? "dim")}
    title={lost ? "The run has not ended, and the Temporal server does not have it." : undefined}
  >
    {lost ? "lost" : state}
  </Pill>
);

const fateKinds: Record<string, string> = {
  kept: "good",
  dropped: "warn",
  uniform: "dim",
  excluded: "bad",
  all_correct: "dim",
  all_wrong: "dim",
  empty: "bad",
  greedy: "run",
  sampled: "dim",
};
export const fateWords: Record<string, string> = { all_correct: "all correct", all_wrong: "all wrong", empty: "lost" };
export const Fate = ({ fate }: { fate: string }) => (
  <Pill kind={fateKinds[fate] ?? "dim"}>{fateWords[fate] ?? (fate || "not recorded")}</Pill>
);

const statusKinds: Record<string, string> = { ok: "good" };
export const Status = ({ status }: { status: string }) => <Pill kind={statusKinds[status] ?? "bad"}>{status}</Pill>;

// Load shows what a request gave: nothing for a moment, an error, or its data.
export function Load<T>({ of, children }: { of: Loaded<T>; children: (data: T) => ComponentChildren }) {
  if (of.data !== undefined)
    return (
      <>
        {of.error && <Note kind="bad">{of.error.message}</Note>}
        {children(of.data)}
      </>
    );
  if (of.error) return <Note kind="bad">{of.error.message}</Note>;
  return (
    <p class="dim loading" role="status">
      loading …
    </p>
  );
}

export const Note = ({ kind, children }: { kind: string; children: ComponentChildren }) => (
  <p class={"note note-" + kind} role={kind === "bad" ? "alert" : undefined}>
    {children}
  </p>
);

// Text shows what a model or a tool wrote: as text nodes alone, folded where it is long.
const foldChars = 6000,
  foldLines = 60,
  mostChars = 200_000;
export function Text({ text, mono, empty }: { text: string; mono?: boolean; empty?: string }) {
  const [open, setOpen] = useState(false);
  const lines = useMemo(() => {
    let n = 0;
    for (let i = 0; i < text.length && n <= foldLines; i++) if (text[i] === "\n") n++;
    return n;
  }, [text]);
  const long = text.length > foldChars || lines > foldLines;
  let part = text;
  if (long && !open) {
    part = text.slice(0, foldChars);
    let at = -1;
    for (let n = 0; n < foldLines && (at = part.indexOf("\n", at + 1)) >= 0; n++);
    if (at >= 0) part = part.slice(0, at);
  } else if (text.length > mostChars) part = text.slice(0, mostChars);
  if (!text) return <span class="dim">{empty ?? "empty"}</span>;
  return (
    <div class={mono ? "text mono" : "text"}>
      <pre tabIndex={0}>{shown(part)}</pre>
      {long && (
        <button class="link" onClick={() => setOpen(!open)}>
          {open ? "fold" : `show all ${text.length.toLocaleString()} characters`}
        </button>
      )}
      {open && text.length > mostChars && (
        <p class="dim">The rest, {(text.length - mostChars).toLocaleString()} characters, is not shown here.</p>
      )}
    </div>
  );
}

export interface Col {
  name: string;
  label: string;
  title?: string;
  width: number;
  right?: boolean;
  cell: (row: number) => ComponentChildren;
  sort?: (row: number) => number | string | null;
}

// Grid shows of many rows those that are in view. Rows are numbers: what stands in a row, the columns
// know. The spacer inside keeps the height, since a table would stretch its rows.
const rowHeight = 30;
export function Grid({
  cols,
  rows,
  sort,
  onSort,
  onOpen,
  label,
  href,
}: {
  cols: Col[];
  rows: ArrayLike<number>;
  sort: string;
  onSort: (s: string) => void;
  onOpen: (row: number) => void;
  label: string;
  href: (row: number) => string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ from: 0, to: 60 });
  const [at, setAt] = useState(0);
  const look = () => {
    const el = box.current;
    if (!el) return;
    const from = Math.max(0, Math.floor(el.scrollTop / rowHeight) - 10);
    const to = from + Math.ceil(el.clientHeight / rowHeight) + 20;
    setView((v) => (v.from === from && v.to === to ? v : { from, to }));
  };
  useEffect(look, [rows.length]);
  useEffect(() => {
    setAt(0);
    if (box.current) box.current.scrollTop = 0;
  }, [rows]);
  const move = (to: number) => {
    const n = Math.max(0, Math.min(rows.length - 1, to));
    setAt(n);
    const el = box.current!;
    if (n * rowHeight < el.scrollTop) el.scrollTop = n * rowHeight;
    else if ((n + 2) * rowHeight > el.scrollTop + el.clientHeight) el.scrollTop = (n + 2) * rowHeight - el.clientHeight;
  };
  const keys = (e: KeyboardEvent) => {
    const steps: Record<string, number> = {
      ArrowDown: 1,
      j: 1,
      ArrowUp: -1,
      k: -1,
      PageDown: 20,
      PageUp: -20,
      Home: -1e9,
      End: 1e9,
    };
    if (e.key in steps) {
      e.preventDefault();
      e.stopPropagation();
      move(at + steps[e.key]);
    }
    if (e.key === "Enter" && e.target === e.currentTarget && at < rows.length) {
      e.preventDefault();
      onOpen(rows[at]);
    }
  };
  const width = cols.reduce((n, c) => n + c.width, 0);
  const [key, down] = [sort.replace(/^-/, ""), sort.startsWith("-")];
  const out: JSX.Element[] = [];
  for (let i = view.from; i < Math.min(view.to, rows.length); i++) {
    const row = rows[i];
    out.push(
      <div
        key={row}
        class={"grid-row" + (i === at ? " here" : "")}
        style={{ top: i * rowHeight + "px" }}
        role="row"
        aria-rowindex={i + 2}
        onClick={(e) => {
          if ((e.target as HTMLElement).closest("a")) return;
          setAt(i);
          onOpen(row);
        }}
      >
        {cols.map((c, j) => (
          <span key={c.name} role="cell" class={c.right ? "right" : ""} style={{ width: c.width + "px" }}>
            {j === 0 ? (
              <A href={href(row)} tabIndex={-1}>
                {c.cell(row)}
              </A>
            ) : (
              c.cell(row)
            )}
          </span>
        ))}
      </div>,
    );
  }
  return (
    <div
      class="grid"
      ref={box}
      onScroll={look}
      onKeyDown={keys}
      tabIndex={0}
      role="table"
      aria-label={label}
      aria-rowcount={rows.length + 1}
    >
      <div class="grid-head" style={{ width: width + "px" }} role="row" aria-rowindex={1}>
        {cols.map((c) => (
          <span
            key={c.name}
            role="columnheader"
            aria-sort={key === c.name ? (down ? "descending" : "ascending") : undefined}
            class={c.right ? "right" : ""}
            style={{ width: c.width + "px" }}
            title={c.title}
          >
            {c.sort ? (
              <button class="head" onClick={() => onSort(key === c.name && !down ? "-" + c.name : c.name)}>
                {c.label}
                {key === c.name ? (down ? " ▾" : " ▴") : ""}
              </button>
            ) : (
              c.label
            )}
          </span>
        ))}
      </div>
      <div class="grid-body" style={{ height: rows.length * rowHeight + "px", width: width + "px" }} role="rowgroup">
        {out}
      </div>
    </div>
  );
}

// sorted orders rows by a column.
export function sorted(rows: number[], cols: Col[], sort: string): number[] {
  const of = cols.find((c) => c.name === sort.replace(/^-/, ""))?.sort;
  if (!of) return rows;
  const sign = sort.startsWith("-") ? -1 : 1;
  const keys = new Map(rows.map((r) => [r, of(r)]));
  return [...rows].sort((a, b) => {
    const x = keys.get(a),
      y = keys.get(b);
    if (x === y || x === undefined || y === undefined) return a - b;
    if (x === null) return 1;
    if (y === null) return -1;
    return (x < y ? -1 : 1) * sign;
  });
}

// Histogram is bars that filter.
export function Histogram({
  values,
  label,
  range,
  onRange,
  bins = 16,
}: {
  values: (number | null)[];
  label: string;
  range: string;
  onRange: (r: string) => void;
  bins?: number;
}) {
  const { low, high, counts } = useMemo(() => {
    let low = Infinity,
      high = -Infinity;
    for (const v of values)
      if (v !== null) {
        low = Math.min(low, v);
        high = Math.max(high, v);
      }
    const counts = new Array<number>(bins).fill(0);
    const edge = (i: number) => low + ((high - low) * i) / bins;
    for (const v of values)
      if (v !== null) {
        // by the edges, as the filter that a bar sets
        let i = high === low ? 0 : Math.min(bins - 1, Math.floor(((v - low) / (high - low)) * bins));
        while (i > 0 && v < edge(i)) i--;
        while (i < bins - 1 && high > low && v >= edge(i + 1)) i++;
        counts[i]++;
      }
    return { low, high, counts };
  }, [values]);
  const most = Math.max(1, ...counts);
  if (!Number.isFinite(low)) return null;
  const edge = (i: number) => low + ((high - low) * i) / bins;
  const short = (v: number) => String(+v.toPrecision(3));
  return (
    <div class="hist">
      <div class="hist-title">
        {label}
        {range && (
          <button class="link" onClick={() => onRange("")}>
            clear
          </button>
        )}
      </div>
      <div class="hist-bars">
        {counts.map((n, i) => {
          const r = edge(i) + ".." + (i === bins - 1 || high === low ? Infinity : edge(i + 1));
          return (
            <button
              key={i}
              class={range === r ? "bar here" : "bar"}
              title={`${short(edge(i))} to ${short(edge(i + 1))}: ${n}`}
              aria-label={`${label} ${short(edge(i))} to ${short(edge(i + 1))}: ${n} trajectories`}
              disabled={n === 0}
              onClick={() => onRange(range === r ? "" : r)}
            >
              <i style={{ height: (n === 0 ? 0 : Math.max(4, (100 * n) / most)) + "%" }} />
            </button>
          );
        })}
      </div>
      <div class="hist-axis">
        <span>{short(low)}</span>
        <span>{short(high)}</span>
      </div>
    </div>
  );
}
