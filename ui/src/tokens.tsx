// The tokens and the record of a trajectory.
import { useState } from "preact/hooks";
import { type Num, asNumber, num, query, setQuery, shown, useApi } from "./core";
import { Load, Text } from "./parts";
import { Chart } from "./chart";
import { Section } from "./head";
import type { TokensView, TrajectoryView } from "./api";

const reflection =
  /^(wait|but|however|check|verify|actually|hmm|alternatively|recheck|maybe|instead|error|fix|wrong|retry|again)$/i;

const page = 3000;

// TrainerTokens are what a run records of each token where record.token_stats asks for it.
type TrainerTokens = { trainer_logprobs?: Num[]; entropies?: Num[] };

export function Tokens({ path }: { path: string }) {
  const t = useApi<TokensView>(path);
  const [at, setAt] = useState<number | null>(null);
  const [from, setFrom] = useState(0);
  return (
    <Load of={t}>
      {(v) => {
        const { trainer_logprobs: trained, entropies } = v as TrainerTokens;
        const ways: [string, string, (i: number) => number | null][] = [
          [
            "",
            "log-probability of the engine",
            (i) => {
              const x = asNumber(v.logprobs[i]);
              return x === null ? null : -x * 2;
            },
          ],
        ];
        if (entropies)
          ways.push([
            "entropy",
            "entropy",
            (i) => {
              const x = asNumber(entropies[i]);
              return x === null ? null : x * 3;
            },
          ]);
        if (trained)
          ways.push([
            "difference",
            "trainer − engine",
            (i) => {
              const a = asNumber(trained[i]),
                b = asNumber(v.logprobs[i]);
              return a === null || b === null ? null : Math.abs(a - b) * 20;
            },
          ]);
        const way = ways.find((w) => w[0] === query("heat")) ?? ways[0];
        const heat = (x: number | null) => (x === null ? 0 : Math.max(0, Math.min(8, Math.floor(x))));
        // Forking tokens are those of the highest entropy: the top fifth of what was sampled (arXiv 2506.01939).
        const spreads = (entropies ?? [])
            .map(asNumber)
            .filter((x): x is number => x !== null)
            .sort((a, b) => b - a),
          forking = spreads.length ? spreads[Math.floor(spreads.length / 5)] : Infinity;
        const out = [];
        for (let i = from; i < Math.min(v.ids.length, from + page); i++) {
          const text = v.texts[i];
          const cls =
            "tok" +
            (v.mask[i] ? " heat-" + heat(way[2](i)) : " masked") +
            (entropies && v.mask[i] && (asNumber(entropies[i]) ?? -1) > forking ? " forks" : "") +
            (i === v.prompt_tokens ? " first" : "") +
            (v.mask[i] && reflection.test(text.trim()) ? " reflects" : "") +
            (at === i ? " here" : "");
          out.push(
            <span key={i} class={cls} data-i={i}>
              {shown(text).replace(/\n/g, "⏎\n") || "·"}
            </span>,
          );
        }
        const find = (e: Event) => {
          const i = (e.target as HTMLElement).dataset?.i;
          if (i !== undefined) setAt(Number(i));
        };
        const at0 = v.ids.map((_, i) => i),
          lines = [
            {
              label: way[1],
              x: at0,
              y:
                way[0] === "entropy"
                  ? entropies!
                  : way[0] === "difference"
                    ? v.ids.map((_, i) => {
                        const a = asNumber(trained![i]),
                          b = asNumber(v.logprobs[i]);
                        return a === null || b === null ? null : a - b;
                      })
                    : v.logprobs,
            },
          ];
        return (
          <>
            {ways.length > 1 && (
              <div class="bar">
                <label>
                  colour{" "}
                  <select value={way[0]} onChange={(e) => setQuery({ heat: e.currentTarget.value })}>
                    {ways.map((w) => (
                      <option key={w[0]} value={w[0]}>
                        {w[1]}
                      </option>
                    ))}
                  </select>
                </label>
              </div>
            )}
            <Chart
              key={way[0]}
              title={way[1]}
              unit="nats"
              lines={lines}
              height={110}
              xLabel="token"
              gaps
              onPick={(x) => {
                setFrom(Math.floor(x / page) * page);
                setAt(x);
              }}
            />
            <p class="dim small">
              {way[0] === "" ? "Dark is unlikely." : "Dark is high."}{" "}
              {entropies && "Outlined ones fork: the fifth with the highest entropy. "}Dimmed tokens are in no loss: the
              policy did not sample them. Underlined ones are words of reflection.
              {v.missing.length > 0 && ` Not recorded: ${v.missing.join(", ")}.`}
            </p>
            <p class="token-info" role="status">
              {at === null ? (
                "Point at a token."
              ) : (
                <>
                  token {at}: id {v.ids[at]}, <code>{shown(v.texts[at])}</code>
                  {v.mask[at]
                    ? `, log-probability ${num(v.logprobs[at], 4)}, probability ${num(Math.exp(asNumber(v.logprobs[at]) ?? NaN), 4)}`
                    : ", not sampled"}
                  {at !== null && v.mask[at] && trained ? `, trainer ${num(trained[at], 4)}` : ""}
                  {at !== null && v.mask[at] && entropies ? `, entropy ${num(entropies[at], 4)}` : ""}
                </>
              )}
            </p>
            {v.ids.length > page && (
              <div class="bar">
                <button disabled={from === 0} onClick={() => setFrom(from - page)}>
                  ‹
                </button>
                <span class="dim">
                  tokens {from} to {Math.min(v.ids.length, from + page)} of {v.ids.length}
                </span>
                <button disabled={from + page >= v.ids.length} onClick={() => setFrom(from + page)}>
                  ›
                </button>
              </div>
            )}
            <div
              class="tokens"
              tabIndex={0}
              aria-label="tokens"
              role="group"
              onMouseOver={find}
              onClick={find}
              onKeyDown={(e) => {
                const d = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
                if (d) {
                  e.preventDefault();
                  setAt(Math.max(0, Math.min(v.ids.length - 1, (at ?? v.prompt_tokens) + d)));
                }
              }}
            >
              {out}
            </div>
          </>
        );
      }}
    </Load>
  );
}

export function Raw({ t, path }: { t: TrajectoryView; path: string }) {
  const text = JSON.stringify(t, null, 2),
    curl = `curl '${location.origin}/api/v1${path}'`;
  return (
    <Section title="Record">
      <p>
        <code>{curl}</code> <button onClick={() => void navigator.clipboard?.writeText(text)}>copy JSON</button>
      </p>
      <Text text={text} mono />
    </Section>
  );
}
