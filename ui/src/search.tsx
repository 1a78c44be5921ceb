// The page that searches all steps of a run, by numbers or by text.
import { useEffect, useState } from "preact/hooks";
import { asNumber, enc, go, num, query, readLines, runPath, setQuery, shown, useApi, useRuns } from "./core";
import { A, Fate, Load, Note } from "./parts";
import { Chart } from "./chart";
import { RunHead } from "./head";
import type { FindView, RunView } from "./api";

export function SearchPage({ run }: { run: string }) {
  const version = useRuns([run]);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  const mode = query("by", "numbers");
  return (
    <>
      <RunHead run={run} view={view.data} />
      <h2>Search</h2>
      <div class="tabs" role="tablist">
        {[
          ["numbers", "by numbers"],
          ["text", "by text"],
        ].map(([m, label]) => (
          <button
            key={m}
            role="tab"
            aria-selected={mode === m}
            onClick={() => setQuery({ by: m === "numbers" ? null : m })}
          >
            {label}
          </button>
        ))}
      </div>
      {mode === "text" ? <TextSearch key={run} run={run} /> : <Find key={run} run={run} version={version} />}
    </>
  );
}

function Find({ run, version }: { run: string; version: number }) {
  const filter = query("filter");
  const [text, setText] = useState(filter);
  const [again, setAgain] = useState(0);
  const found = useApi<FindView>(`/runs/${enc(run)}/find?filter=${enc(filter)}`, version * 1000 + again);
  const unread = found.data?.unread ?? 0;
  useEffect(() => {
    if (!found.loading && unread > 0 && !found.error) {
      const t = setTimeout(() => setAgain((n) => n + 1), 100);
      return () => clearTimeout(t);
    }
  }, [found.data, found.loading]);
  return (
    <>
      <form
        class="bar"
        onSubmit={(e) => {
          e.preventDefault();
          setQuery({ filter: text });
        }}
      >
        <input
          id="search"
          class="wide"
          type="search"
          placeholder="reward=1 failed_calls>2 fate=dropped"
          aria-label="filter trajectories of all steps"
          value={text}
          maxLength={500}
          onInput={(e) => setText(e.currentTarget.value)}
        />
        <button class="primary">find</button>
      </form>
      <Load of={found}>
        {(v) => (
          <>
            <p class="dim small">Columns: {v.columns.join(", ")}.</p>
            <p role="status">
              <b>{v.found.toLocaleString()}</b> of {v.rows.toLocaleString()} trajectories
              {v.unread > 0 ? `; ${v.unread} steps are still being read` : ""}
              {v.missing > 0 ? `; of ${v.missing} steps no index is recorded` : ""}.
            </p>
            {v.steps.length > 1 && (
              <Chart
                title="share that matches, by step"
                lines={[
                  {
                    label: "share",
                    x: [...v.steps].reverse().map((s) => s.step),
                    y: [...v.steps].reverse().map((s) => s.found / Math.max(1, s.rows)),
                  },
                ]}
                height={110}
                onPick={(n) => go(runPath(run, "steps", n))}
              />
            )}
            {v.first.length > 0 && (
              <div class="scroll" tabIndex={0}>
                <table>
                  <thead>
                    <tr>
                      <th class="right">step</th>
                      <th>trajectory</th>
                      <th class="right">reward</th>
                      <th>fate</th>
                      <th class="right">failed</th>
                      <th class="right">turns</th>
                      <th class="right">tokens</th>
                      <th>stop</th>
                      <th>answer</th>
                    </tr>
                  </thead>
                  <tbody>
                    {v.first.map((r) => (
                      <tr key={`${r.step} ${r.problem} ${r.rollout}`}>
                        <td class="right">
                          <A href={runPath(run, "steps", r.step)}>{r.step}</A>
                        </td>
                        <td>
                          <A href={runPath(run, "steps", r.step, r.problem, r.rollout)}>
                            {r.problem} / {r.rollout}
                          </A>
                        </td>
                        <td class={"right " + (r.reward > 0 ? "good" : "bad")}>{num(r.reward)}</td>
                        <td>
                          <Fate fate={r.fate} />
                        </td>
                        <td class="right">
                          {r.failed_calls}/{r.calls}
                        </td>
                        <td class="right">{r.turns}</td>
                        <td class="right">{r.response_tokens}</td>
                        <td>{r.stop_reason}</td>
                        <td class="mono">{shown(r.answer.slice(0, 60))}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )}
            {v.found > v.first.length && <p class="dim small">The newest {v.first.length} are shown.</p>}
          </>
        )}
      </Load>
    </>
  );
}

interface Hit {
  step: number;
  problem: string;
  rollout: number;
  reward: number;
  before: string;
  match: string;
  after: string;
}
interface Line extends Partial<Hit> {
  progress?: { step: number; steps_done: number; steps: number; groups: number; bytes: number };
  done?: boolean;
  hits?: number;
  truncated?: boolean;
  reason?: string;
  error?: string;
}

function TextSearch({ run }: { run: string }) {
  const q = query("text"),
    regex = query("regex") === "1";
  const [text, setText] = useState(q);
  const [hits, setHits] = useState<Hit[]>([]);
  const [state, setState] = useState<Line & { failed?: string }>({});
  useEffect(() => {
    setHits([]);
    setState({});
    if (!q) return;
    const stop = new AbortController();
    readLines<Line>(
      `/runs/${enc(run)}/search?limit=200&q=${enc(q)}${regex ? "&regex=1" : ""}`,
      stop.signal,
      (lines) => {
        const found = lines.filter((l): l is Hit => l.problem !== undefined);
        if (found.length) setHits((old) => [...old, ...found]);
        const last = [...lines].reverse().find((l) => l.progress || l.done || l.error);
        if (last) setState(last);
      },
    ).catch((e: Error & { status?: number }) => {
      if (!stop.signal.aborted)
        setState({
          failed:
            e.status === 404
              ? "This run keeps no texts that can be searched, or the dashboard is of an older build."
              : e.message,
        });
    });
    return () => stop.abort();
  }, [q, regex, run]);
  return (
    <>
      <form
        class="bar"
        onSubmit={(e) => {
          e.preventDefault();
          setQuery({ text });
        }}
      >
        <input
          id="search"
          class="wide"
          type="search"
          placeholder="text of a response, such as NameError"
          aria-label="search texts"
          value={text}
          maxLength={500}
          onInput={(e) => setText(e.currentTarget.value)}
        />
        <label class="check">
          <input
            type="checkbox"
            checked={regex}
            onChange={(e) => setQuery({ regex: e.currentTarget.checked ? "1" : null })}
          />{" "}
          regular expression
        </label>
        <button class="primary">search</button>
        {q && !state.done && !state.failed && (
          <button type="button" onClick={() => setQuery({ text: null })}>
            stop
          </button>
        )}
      </form>
      {state.failed && <Note kind="bad">{state.failed}</Note>}
      {state.error && <Note kind="bad">{state.error}</Note>}
      {q && (
        <p role="status" class="dim small">
          {hits.length} found
          {state.progress
            ? `; step ${state.progress.step}, ${state.progress.steps_done} of ${state.progress.steps} steps searched`
            : ""}
          {state.done ? (state.truncated || state.error ? "; not all is searched" : "; all is searched") : ""}
          {state.reason ? ` (${state.reason})` : ""}
        </p>
      )}
      {hits.length > 0 && (
        <ul class="events hits">
          {hits.map((h, i) => (
            <li key={i}>
              <A href={runPath(run, "steps", h.step, h.problem, h.rollout)}>
                step {h.step}, {h.problem} / {h.rollout}
              </A>{" "}
              <span class={h.reward > 0 ? "good" : "bad"}>reward {num(asNumber(h.reward))}</span>
              <br />
              <span class="mono small">
                {shown(h.before)}
                <mark>{shown(h.match)}</mark>
                {shown(h.after)}
              </span>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
