// The table of the trajectories of a step or an evaluation.
import { useMemo } from "preact/hooks";
import { type Num, asNumber, go, num, query, save, setQuery, shown } from "./core";
import { type Col, Fate, Grid, Histogram, fateWords, sorted } from "./parts";
import type { Columns } from "./api";

type Words = { words: string[]; at: number[] };

class Rows {
  constructor(readonly c: Columns) {}
  get n() {
    return this.c.rows;
  }
  word(name: string, i: number) {
    const w = this.c.data[name] as Words;
    return w.words[w.at[i]];
  }
  words(name: string) {
    return (this.c.data[name] as Words | undefined)?.words ?? [];
  }
  num(name: string, i: number): number | null {
    return asNumber((this.c.data[name] as Num[] | undefined)?.[i]);
  }
  text(name: string, i: number) {
    return String((this.c.data[name] as unknown[] | undefined)?.[i] ?? "");
  }
}

const inRange = (v: number | null, range: string) => {
  if (!range) return true;
  const [a, b] = range.split("..").map(Number);
  return v !== null && v >= a && v < b;
};

// Trajectories is the table of a step or an evaluation with its filters.
export function Trajectories({ columns, href }: { columns: Columns; href: (problem: string, k: number) => string }) {
  const r = useMemo(() => new Rows(columns), [columns]);
  const f = {
    fate: query("fate"),
    stop: query("stop"),
    reward: query("reward"),
    errors: query("errors"),
    q: query("q"),
    tokens: query("tokens"),
    turns: query("turns"),
    rate: query("rate"),
    sort: query("sort", "problem"),
  };
  const rate = (i: number) => {
    const c = r.num("calls", i);
    return c ? (r.num("failed_calls", i) ?? 0) / c : null;
  };
  const cols: Col[] = useMemo(() => {
    const number = (name: string, label: string, width: number, digits = 3, title?: string): Col => ({
      name,
      label,
      width,
      right: true,
      title,
      cell: (i) => num(r.num(name, i), digits),
      sort: (i) => r.num(name, i),
    });
    return [
      {
        name: "problem",
        label: "problem",
        width: 160,
        cell: (i) => r.word("problem", i),
        sort: (i) => r.word("problem", i),
      },
      number("rollout", "#", 40),
      {
        name: "reward",
        label: "reward",
        width: 70,
        right: true,
        cell: (i) => <span class={(r.num("reward", i) ?? 0) > 0 ? "good" : "bad"}>{num(r.num("reward", i))}</span>,
        sort: (i) => r.num("reward", i),
      },
      {
        name: "fate",
        label: "fate",
        width: 96,
        cell: (i) => <Fate fate={r.word("fate", i)} />,
        sort: (i) => r.word("fate", i),
      },
      number("advantage", "advantage", 86),
      number("p_err", "p_err", 62, 2, "share of tool calls that failed; 0.5 without calls"),
      number("p_format", "p_format", 76, 2, "0 with exactly one answer"),
      number("weight", "weight", 70, 3, "1/(p_err + p_format + smoothing)"),
      number("turns", "turns", 56),
      number("calls", "calls", 58),
      number("failed_calls", "failed", 62),
      number("response_tokens", "tokens", 68),
      number("mean_logprob", "logprob", 78, 3, "mean log-probability of the sampled tokens, nats"),
      number(
        "mean_entropy",
        "entropy",
        78,
        3,
        "mean entropy of the policy at the sampled tokens, nats; of the groups that tracker.token_stats asks for",
      ),
      {
        name: "stop_reason",
        label: "stop",
        width: 114,
        cell: (i) => r.word("stop_reason", i),
        sort: (i) => r.word("stop_reason", i),
      },
      {
        name: "answer",
        label: "answer",
        width: 220,
        cell: (i) => shown(r.text("answer", i).slice(0, 60)),
        sort: (i) => r.text("answer", i),
      },
    ];
  }, [r]);
  const rows = useMemo(() => {
    const out: number[] = [],
      needle = f.q.toLowerCase();
    for (let i = 0; i < r.n; i++) {
      if (f.fate && r.word("fate", i) !== f.fate) continue;
      if (f.stop && r.word("stop_reason", i) !== f.stop) continue;
      if (f.reward && (r.num("reward", i) ?? 0) > 0 !== (f.reward === "1")) continue;
      if (f.errors && (r.num("failed_calls", i) ?? 0) > 0 !== (f.errors === "1")) continue;
      if (
        !inRange(r.num("response_tokens", i), f.tokens) ||
        !inRange(r.num("turns", i), f.turns) ||
        !inRange(rate(i), f.rate)
      )
        continue;
      if (needle && !(r.word("problem", i) + " " + r.text("answer", i)).toLowerCase().includes(needle)) continue;
      out.push(i);
    }
    return sorted(out, cols, f.sort);
  }, [r, cols, JSON.stringify(f)]);
  const all = useMemo(() => {
    const take = (g: (i: number) => number | null) => Array.from({ length: r.n }, (_, i) => g(i));
    return {
      tokens: take((i) => r.num("response_tokens", i)),
      turns: take((i) => r.num("turns", i)),
      rate: take(rate),
    };
  }, [r]);
  const choose = (key: string, value: string, label: string, options: [string, string][]) => (
    <select aria-label={label} value={value} onChange={(e) => setQuery({ [key]: e.currentTarget.value })}>
      <option value="">{label}</option>
      {options.map(([v, t]) => (
        <option key={v} value={v}>
          {t}
        </option>
      ))}
    </select>
  );
  const csv = () => {
    const names = cols.map((c) => c.name),
      cell = (c: string, i: number) => {
        const t =
          c in { problem: 1, fate: 1, stop_reason: 1 }
            ? r.word(c, i)
            : c === "answer"
              ? r.text(c, i)
              : String(r.num(c, i) ?? "");
        return /[",\n\r]/.test(t) ? `"${t.replace(/"/g, '""')}"` : t;
      };
    save(
      "trajectories.csv",
      new Blob([names.join(",") + "\n" + rows.map((i) => names.map((c) => cell(c, i)).join(",")).join("\n") + "\n"], {
        type: "text/csv",
      }),
    );
  };
  return (
    <>
      {columns.remark && <p class="dim small">{columns.remark}</p>}
      <div class="hists">
        <Histogram
          label="response tokens"
          values={all.tokens}
          range={f.tokens}
          onRange={(v) => setQuery({ tokens: v })}
        />
        <Histogram label="turns" values={all.turns} range={f.turns} onRange={(v) => setQuery({ turns: v })} bins={8} />
        <Histogram
          label="share of failed calls"
          values={all.rate}
          range={f.rate}
          onRange={(v) => setQuery({ rate: v })}
          bins={8}
        />
      </div>
      <div class="bar">
        <input
          id="search"
          type="search"
          placeholder="problem or answer"
          aria-label="filter by problem or answer"
          value={f.q}
          onInput={(e) => setQuery({ q: e.currentTarget.value })}
        />
        {choose(
          "fate",
          f.fate,
          "any fate",
          r.words("fate").map((w) => [w, fateWords[w] ?? w]),
        )}
        {choose("reward", f.reward, "any reward", [
          ["1", "correct"],
          ["0", "wrong"],
        ])}
        {choose("errors", f.errors, "any calls", [
          ["1", "with failed calls"],
          ["0", "without failed calls"],
        ])}
        {choose(
          "stop",
          f.stop,
          "any end",
          r.words("stop_reason").map((w) => [w, w]),
        )}
        <span class="dim">
          {rows.length.toLocaleString()} of {r.n.toLocaleString()}
        </span>
        <button onClick={csv}>CSV</button>
      </div>
      <Grid
        label="trajectories"
        cols={cols}
        rows={rows}
        sort={f.sort}
        onSort={(s) => setQuery({ sort: s === "problem" ? null : s })}
        href={(i) => href(r.word("problem", i), r.num("rollout", i)!)}
        onOpen={(i) => go(href(r.word("problem", i), r.num("rollout", i)!))}
      />
    </>
  );
}
