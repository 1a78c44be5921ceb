// The page of a trajectory.
import { useLayoutEffect } from "preact/hooks";
import { bytes, enc, go, num, query, runPath, seconds, setQuery, shown, useApi } from "./core";
import { A, Fate, Load, Note, Status, Text } from "./parts";
import { RunHead, Section } from "./head";
import { Raw, Tokens } from "./tokens";
import type { RunView, TrajectoryView } from "./api";

export function TrajectoryPage({
  run,
  step,
  evaluation,
  problem,
  k,
}: {
  run: string;
  step?: number;
  evaluation?: string;
  problem: string;
  k: number;
}) {
  const view = useApi<RunView>(`/runs/${enc(run)}`);
  const base = evaluation
    ? `/runs/${enc(run)}/evals/${enc(evaluation)}/${enc(problem)}/${k}`
    : `/runs/${enc(run)}/steps/${step}/${enc(problem)}/${k}`;
  const t = useApi<TrajectoryView>(base);
  const tab = query("tab", "conversation"),
    other = query("beside");
  const way = (n: number) =>
    (evaluation ? runPath(run, "evals", evaluation, problem, n) : runPath(run, "steps", step!, problem, n)) +
    (tab === "conversation" ? "" : "?tab=" + tab);
  const list = t.data?.rollouts ?? [],
    at = list.indexOf(k);
  useLayoutEffect(() => {
    // with the page, not after it: a key may come at once
    const keys = (e: KeyboardEvent) => {
      if ((e.target as HTMLElement).matches("input,textarea,select") || e.ctrlKey || e.metaKey || e.altKey) return;
      if (e.key === "j" && at >= 0 && at + 1 < list.length) go(way(list[at + 1]));
      if (e.key === "k" && at > 0) go(way(list[at - 1]));
      if (e.key === "t" && !evaluation) setQuery({ tab: tab === "tokens" ? null : "tokens" });
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  });
  return (
    <>
      <RunHead run={run} view={view.data} />
      <Load of={t}>
        {(v) => (
          <>
            <div class="bar">
              <h2>
                {step !== undefined ? (
                  <>
                    <A href={runPath(run, "steps", step)}>Step {step}</A> ·{" "}
                    <A href={runPath(run, "steps", step, problem)}>{problem}</A>
                  </>
                ) : (
                  <>
                    <A href={runPath(run, "evals", evaluation!)}>Evaluation {evaluation}</A> · {problem}
                  </>
                )}{" "}
                · rollout {k}
              </h2>
              {v.fate && <Fate fate={v.fate} />}
              <span class={v.reward > 0 ? "good" : "bad"}>reward {num(v.reward)}</span>
              {v.advantage !== undefined && v.advantage !== null && (
                <span class="dim">advantage {num(v.advantage)}</span>
              )}
              {at > 0 && (
                <A class="button" href={way(list[at - 1])} aria-label="rollout before" title="k">
                  ‹
                </A>
              )}
              {at >= 0 && at + 1 < list.length && (
                <A class="button" href={way(list[at + 1])} aria-label="rollout after" title="j">
                  ›
                </A>
              )}
            </div>
            {v.why && <p class="why">{v.why}</p>}
            {v.err && <Note kind="bad">{shown(v.err)}</Note>}
            <p class="dim small">
              policy {v.policy_version}, {v.prompt_tokens} + {v.response_tokens} tokens, {v.turns} turns,{" "}
              {v.failed_calls} of {v.calls} calls failed, ended by {v.stop_reason}, mean log-probability{" "}
              {num(v.mean_logprob)};{" "}
              {(v as Spent).spent
                ? `${seconds((v as Spent).spent!.sample_s)} generating, ${seconds((v as Spent).spent!.tool_s)} in tools`
                : "times of turns and calls: not recorded"}
            </p>
            <div class="tabs" role="tablist">
              {(evaluation ? ["conversation", "time", "raw"] : ["conversation", "tokens", "time", "raw"]).map((x) => (
                <button
                  key={x}
                  role="tab"
                  aria-selected={tab === x}
                  onClick={() => setQuery({ tab: x === "conversation" ? null : x })}
                >
                  {x}
                </button>
              ))}
            </div>
            {!evaluation && tab === "conversation" && (
              <select
                aria-label="show another rollout beside"
                value={other}
                onChange={(e) => setQuery({ beside: e.currentTarget.value })}
              >
                <option value="">beside …</option>
                {list
                  .filter((n) => n !== k)
                  .map((n) => (
                    <option key={n} value={String(n)}>
                      rollout {n}
                    </option>
                  ))}
              </select>
            )}
            {tab === "conversation" &&
              (other && !evaluation ? (
                <div class="beside">
                  <Conversation t={v} />
                  <Beside run={run} step={step!} problem={problem} k={Number(other)} />
                </div>
              ) : (
                <Conversation t={v} />
              ))}
            {tab === "tokens" && !evaluation && <Tokens path={base + "/tokens"} />}
            {tab === "time" && <Times t={v} />}
            {tab === "raw" && <Raw t={v} path={base} />}
          </>
        )}
      </Load>
    </>
  );
}

function Beside({ run, step, problem, k }: { run: string; step: number; problem: string; k: number }) {
  const t = useApi<TrajectoryView>(`/runs/${enc(run)}/steps/${step}/${enc(problem)}/${k}`);
  return (
    <div>
      <Load of={t}>
        {(v) => (
          <>
            <p>
              <A href={runPath(run, "steps", step, problem, k)}>rollout {k}</A> <Fate fate={v.fate} /> reward{" "}
              {num(v.reward)}
            </p>
            <p class="why">{v.why}</p>
            <Conversation t={v} />
          </>
        )}
      </Load>
    </div>
  );
}

// Spent is how long turns and calls took, where the run has recorded it.
interface CallTime {
  begin_s: number;
  took_s?: number;
  queue_s?: number;
  wall_s?: number;
  cpu_s?: number;
  peak_memory_bytes?: number;
  stdout_bytes?: number;
  stderr_bytes?: number;
  stdout?: string;
  stderr?: string;
}

type Spent = {
  spent?: { sample_s: number; tool_s: number; turns: { begin_s: number; generate_s: number; calls?: CallTime[] }[] };
};

// Times has a lane for generating, waiting and running, and the same as a table.
function Times({ t }: { t: TrajectoryView }) {
  const s = (t as Spent).spent;
  if (!s)
    return (
      <Note kind="dim">
        The times of turns and calls are not recorded: the program that made this step did not store them.
      </Note>
    );
  const calls = s.turns.flatMap((turn, i) =>
    (turn.calls ?? []).map((c, j) => ({ ...c, turn: i, name: t.conversation[i]?.calls?.[j]?.name || "call" })),
  );
  const ran = (c: CallTime) => (c.took_s ?? c.wall_s ?? 0) > 0; // a malformed call runs nothing, and begins nowhere
  const end = Math.max(
    1e-6,
    ...s.turns.map((x) => x.begin_s + x.generate_s),
    ...calls.map((c) => c.begin_s + (c.took_s ?? c.wall_s ?? 0)),
  );
  const bar = (kind: string, from: number, took: number, label: string, key: string) => (
    <div
      key={key}
      class={"span span-" + kind}
      tabIndex={0}
      style={{ left: `min(${(100 * from) / end}%, 100% - 10px)`, width: Math.max(0.4, (100 * took) / end) + "%" }}
      title={label}
      role="img"
      aria-label={label}
    >
      {took / end > 0.06 ? seconds(took) : ""}
    </div>
  );
  const lane = (name: string, bars: preact.ComponentChildren) => (
    <div class="lane" role="listitem">
      <span class="lane-name">{name}</span>
      <div class="lane-track">{bars}</div>
    </div>
  );
  return (
    <>
      <div class="timeline" role="list">
        {lane(
          "generate",
          s.turns.map((x, i) =>
            bar(
              "stage",
              x.begin_s,
              x.generate_s,
              `turn ${i + 1}: generated for ${seconds(x.generate_s)} from ${seconds(x.begin_s)} on`,
              "g" + i,
            ),
          ),
        )}
        {lane(
          "queue",
          calls
            .filter((c) => (c.queue_s ?? 0) > 0)
            .map((c, i) =>
              bar(
                "pause",
                c.begin_s,
                c.queue_s!,
                `turn ${c.turn + 1}: ${c.name} waited ${seconds(c.queue_s!)} for an executor`,
                "q" + i,
              ),
            ),
        )}
        {lane(
          "tool",
          calls
            .filter(ran)
            .map((c, i) =>
              bar(
                "tool",
                c.begin_s + (c.queue_s ?? 0),
                Math.max(0, (c.took_s ?? c.wall_s ?? 0) - (c.queue_s ?? 0)),
                `turn ${c.turn + 1}: ${c.name} took ${seconds(c.took_s ?? c.wall_s ?? 0)}`,
                "t" + i,
              ),
            ),
        )}
        <div class="lane axis">
          <span class="lane-name" />
          <div class="lane-track">
            <span>0 s</span>
            <span>{seconds(end)} in all</span>
          </div>
        </div>
      </div>
      <div class="scroll" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th>turn</th>
              <th>what</th>
              <th class="right">begins</th>
              <th class="right">takes</th>
              <th class="right">queue</th>
              <th class="right">program</th>
              <th class="right">CPU</th>
              <th class="right">memory</th>
              <th class="right">output</th>
            </tr>
          </thead>
          <tbody>
            {s.turns.flatMap((x, i) => [
              <tr key={i}>
                <td>{i + 1}</td>
                <td>generate</td>
                <td class="right">{seconds(x.begin_s)}</td>
                <td class="right">{seconds(x.generate_s)}</td>
                <td />
                <td />
                <td />
                <td />
                <td />
              </tr>,
              ...calls
                .filter((c) => c.turn === i)
                .map((c, j) =>
                  !ran(c) ? (
                    <tr key={i + "." + j}>
                      <td />
                      <td>{c.name}</td>
                      <td class="right dim" colSpan={7}>
                        did not run
                      </td>
                    </tr>
                  ) : (
                    <tr key={i + "." + j}>
                      <td />
                      <td>{c.name}</td>
                      <td class="right">{seconds(c.begin_s)}</td>
                      <td class="right">{c.took_s === undefined ? "–" : seconds(c.took_s)}</td>
                      <td class="right">{c.queue_s === undefined ? "–" : seconds(c.queue_s)}</td>
                      <td class="right">{c.wall_s === undefined ? "–" : seconds(c.wall_s)}</td>
                      <td class="right">{c.cpu_s === undefined ? "–" : seconds(c.cpu_s)}</td>
                      <td class="right">{c.peak_memory_bytes === undefined ? "–" : bytes(c.peak_memory_bytes)}</td>
                      <td class="right">
                        {c.stdout_bytes === undefined ? "–" : bytes(c.stdout_bytes + (c.stderr_bytes ?? 0))}
                      </td>
                    </tr>
                  ),
                ),
            ])}
          </tbody>
        </table>
      </div>
      {calls
        .filter((c) => c.stdout || c.stderr)
        .map((c, i) => (
          <Section key={i} title={`Whole output of turn ${c.turn + 1}`}>
            {c.stdout && <Text text={c.stdout} mono />}
            {c.stderr && (
              <>
                <p class="dim small">standard error</p>
                <Text text={c.stderr} mono />
              </>
            )}
          </Section>
        ))}
    </>
  );
}

// Arguments shows each text among the arguments of a call as it is, such as the code of a
// program, and all else as JSON.
function Arguments({ text }: { text: string }) {
  let members: [string, unknown][] = [];
  try {
    members = Object.entries(JSON.parse(text));
  } catch {
    return <Text text={text} mono />;
  }
  return (
    <>
      {members.map(([name, value]) => (
        <div key={name}>
          <p class="dim small">{name}</p>
          <Text text={typeof value === "string" ? value : JSON.stringify(value)} mono />
        </div>
      ))}
    </>
  );
}

function Conversation({ t }: { t: TrajectoryView }) {
  return (
    <div class="conversation">
      <article class="msg msg-prompt">
        <header>
          prompt <span class="dim">{t.prompt_tokens} tokens</span>
        </header>
        <Text text={t.prompt} />
      </article>
      {t.conversation.map((turn, i) => (
        <div key={i}>
          <article class="msg msg-policy">
            <header>
              policy{" "}
              <span class="dim">
                turn {i + 1}, {turn.end - turn.start} tokens, mean log-probability {num(turn.mean_logprob)}
                {turn.finish !== "stop" ? `, ended by ${turn.finish}` : ""}
              </span>
            </header>
            <Text text={turn.text} />
          </article>
          {(turn.calls ?? []).map((c, j) => (
            <article key={j} class="msg msg-tool">
              <header>
                {c.name || "call"} <Status status={c.status} />
                {!c.id && <span class="dim">malformed</span>}
              </header>
              <Arguments text={c.arguments ?? ""} />
              <p class="dim small">answer to the policy</p>
              <Text text={c.response} mono empty="no output" />
            </article>
          ))}
          {!turn.calls?.length && turn.result && (
            <article class="msg msg-tool">
              <header>after the turn</header>
              <Text text={turn.result} mono />
            </article>
          )}
        </div>
      ))}
      <article class="msg msg-end">
        <header>end</header>
        <p>
          answer <code>{shown(t.answer) || "none"}</code> <span class="dim">key</span>{" "}
          <code>{shown(t.problem_data.answer ?? "") || "not recorded"}</code>
        </p>
        {t.reward_details && <Text text={t.reward_details} mono />}
        {t.cut && <Note kind="warn">{t.cut}</Note>}
      </article>
    </div>
  );
}
