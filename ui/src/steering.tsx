// The drawer that sends commands to a run.
import { signal } from "@preact/signals";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { enc, send, token } from "./core";
import { Note } from "./parts";
import type { Answer, Preview, RunStatus, RunView } from "./api";

export const steering = signal(false);

// preset is the order that the drawer offers when it opens, such as a fork from one checkpoint.
const preset = signal<{ order: string; from: string } | null>(null);

// requests counts the calls of openDrawer, so that an open drawer starts again.
export const requests = signal(0);

// accepted counts the commands that a run has accepted.
export const accepted = signal(0);

export const openDrawer = (order: string, from: string | number) => {
  preset.value = { order, from: String(from) };
  requests.value++;
  steering.value = true;
};

const orders = [
  "pause",
  "resume",
  "checkpoint",
  "amend",
  "skip_stage",
  "repeat_stage",
  "restart",
  "stop",
  "fork",
  "pin",
  "unpin",
];

export const ended = ["fork", "pin", "unpin"]; // what a run that has ended can still be asked

const meanings: Record<string, string> = {
  pause: "Holds the run at the next safe point.",
  resume: "Lets the paused run go on.",
  checkpoint: "Saves a checkpoint after the current step; at once while the run is paused.",
  amend: "Changes keys of the configuration from a step on. What was made before stays as it was.",
  skip_stage: "Ends the current stage, or leaves out a later one.",
  repeat_stage: "Runs a stage once more after all others.",
  restart: "Ends the run and starts another from its checkpoint.",
  stop: "Ends the run at the next safe point and writes its summary.",
  fork: "Starts another run from a checkpoint of this one; this one goes on.",
  pin: "Keeps a checkpoint until it is unpinned.",
  unpin: "Lets a pinned checkpoint go, as the rules of checkpoint say.",
};

export function Drawer({ run, view, why, status }: { run: string; view: RunView; why?: string; status?: RunStatus }) {
  const over = ["done", "stopped", "failed"].includes(view.state);
  const [order, setOrder] = useState(
    preset.value?.order ?? (over ? "fork" : status?.state === "paused" ? "resume" : "pause"),
  );
  const [name, setName] = useState("");
  const [reason, setReason] = useState("");
  const [by, setBy] = useState(localStorage.getItem("temper.by") ?? "");
  const [set, setSet] = useState("");
  const [from, setFrom] = useState(preset.value?.from ?? "");
  const [stage, setStage] = useState("");
  const [now, setNow] = useState(false);
  const [confirm, setConfirm] = useState("");
  const [preview, setPreview] = useState<Preview | null>(null);
  const [answer, setAnswer] = useState<{ text: string; bad?: boolean } | null>(null);
  const [busy, setBusy] = useState(false);
  const first = useRef<HTMLSelectElement>(null);
  useLayoutEffect(() => {
    first.current?.focus();
    preset.value = null;
  }, []); // at once: later it would take the focus from what is being typed
  const changes = order === "amend" || order === "restart" || order === "fork";
  const confirms = order === "stop" || order === "restart";
  const body = () => {
    const values = Object.fromEntries(
      set
        .split(/\n/)
        .map((l) => l.trim())
        .filter(Boolean)
        .map((l) => {
          const i = l.indexOf("=");
          return i < 0 ? [l, ""] : [l.slice(0, i).trim(), l.slice(i + 1).trim()];
        }),
    );
    return {
      command: {
        reason,
        by: by || undefined,
        ...(now ? { now } : {}),
        ...(changes && set.trim() ? { set: values } : {}),
        ...(order === "amend" && from ? { from_step: Number(from) } : {}),
        ...((order === "restart" || ended.includes(order)) && from ? { from } : {}),
        ...(order === "fork" && name ? { run_id: name } : {}),
        ...((order === "skip_stage" || order === "repeat_stage") && stage ? { stage } : {}),
      },
      ...(confirms ? { confirm } : {}),
    };
  };
  const tell = async (f: () => Promise<void>) => {
    setBusy(true);
    setAnswer(null);
    try {
      await f();
    } catch (e) {
      setAnswer({ text: (e as Error).message, bad: true });
    }
    setBusy(false);
  };
  const look = () => tell(async () => setPreview(await send<Preview>(`/runs/${enc(run)}/preview/${order}`, body())));
  const give = () =>
    tell(async () => {
      localStorage.setItem("temper.by", by);
      setAnswer({ text: (await send<Answer>(`/runs/${enc(run)}/commands/${order}`, body())).answer });
      setPreview(null);
      accepted.value++;
    });
  const needsLook = changes && set.trim() !== "" && !preview;
  return (
    <aside
      class="drawer"
      aria-label="steer the run"
      onKeyDown={(e) => {
        if (e.key === "Escape") steering.value = false;
      }}
    >
      <div class="drawer-head">
        <h2>Steer {run}</h2>
        <button
          class="icon"
          aria-label="close"
          onClick={() => {
            steering.value = false;
          }}
        >
          ×
        </button>
      </div>
      {why && <Note kind="warn">{why}</Note>}
      {!why && !token.value && (
        <Note kind="warn">
          Commands need the token. Open the address that the start of the dashboard has printed, or enter it here:
          <input
            type="password"
            aria-label="token"
            placeholder="token"
            onChange={(e) => {
              token.value = e.currentTarget.value.trim();
            }}
          />
        </Note>
      )}
      {!why && (
        <form
          onSubmit={(e) => {
            e.preventDefault();
            void (needsLook ? look() : give());
          }}
        >
          <label>
            command
            <select
              ref={first}
              value={order}
              onChange={(e) => {
                setOrder(e.currentTarget.value);
                setPreview(null);
                setAnswer(null);
              }}
            >
              {(over ? ended : orders).map((o) => (
                <option key={o} value={o}>
                  {o.replace("_", " ")}
                </option>
              ))}
            </select>
          </label>
          <p class="dim small">{meanings[order]}</p>
          {changes && (
            <label>
              changes, one key=value a line
              <textarea
                class="mono"
                rows={3}
                value={set}
                placeholder="rl.optimizer.lr=1e-4"
                onInput={(e) => {
                  setSet(e.currentTarget.value);
                  setPreview(null);
                }}
              />
            </label>
          )}
          {order === "amend" && (
            <label>
              from step (empty: the next one)
              <input
                inputMode="numeric"
                value={from}
                onInput={(e) => {
                  setFrom(e.currentTarget.value.replace(/\D/g, ""));
                  setPreview(null);
                }}
              />
            </label>
          )}
          {(order === "restart" || order === "fork") && (
            <label>
              from checkpoint (best, last or a step)
              <input value={from} placeholder="last" onInput={(e) => setFrom(e.currentTarget.value)} />
            </label>
          )}
          {(order === "pin" || order === "unpin") && (
            <label>
              step of the checkpoint (sft or a number)
              <input required value={from} onInput={(e) => setFrom(e.currentTarget.value)} />
            </label>
          )}
          {order === "fork" && (
            <label>
              id of the new run (empty: made from this one)
              <input value={name} maxLength={64} onInput={(e) => setName(e.currentTarget.value)} />
            </label>
          )}
          {(order === "skip_stage" || order === "repeat_stage") && (
            <label>
              stage
              <select value={stage} onChange={(e) => setStage(e.currentTarget.value)}>
                <option value="">the current one</option>
                {view.plan.map((s) => (
                  <option key={s.index}>{s.name}</option>
                ))}
              </select>
            </label>
          )}
          {["pause", "stop", "skip_stage", "restart"].includes(order) && (
            <label class="check">
              <input type="checkbox" checked={now} onChange={(e) => setNow(e.currentTarget.checked)} /> now: interrupt
              the work in flight
            </label>
          )}
          <label>
            reason
            <input
              required
              value={reason}
              maxLength={2000}
              placeholder="why; it stays in the run's event log"
              onInput={(e) => setReason(e.currentTarget.value)}
            />
          </label>
          <label>
            your name
            <input value={by} maxLength={200} placeholder="browser" onInput={(e) => setBy(e.currentTarget.value)} />
          </label>
          {confirms && (
            <label>
              type <b>{run}</b> to confirm
              <input value={confirm} onInput={(e) => setConfirm(e.currentTarget.value)} />
            </label>
          )}
          {preview && (
            <div class="preview">
              <b>{order === "amend" ? `From step ${preview.step}` : `From checkpoint ${from || "last"}`}</b>
              {preview.changes.map((c) => (
                <div key={c.key} class="mono">
                  <span>{c.key}</span> <del>{c.from || "–"}</del> → <ins>{c.to || "–"}</ins>
                </div>
              ))}
              {!preview.changes.length && !preview.problems.length && <p class="dim">Nothing changes.</p>}
              {preview.warnings.map((w) => (
                <Note key={w} kind="warn">
                  {w}
                </Note>
              ))}
              {preview.problems.map((w) => (
                <Note key={w} kind="bad">
                  {w}
                </Note>
              ))}
            </div>
          )}
          <button
            class={confirms ? "danger" : "primary"}
            disabled={
              busy || !reason.trim() || !token.value || (confirms && confirm !== run) || !!preview?.problems.length
            }
          >
            {needsLook ? "show what changes" : order.replace("_", " ")}
          </button>
        </form>
      )}
      {answer && <Note kind={answer.bad ? "bad" : "good"}>{answer.text}</Note>}
      {status?.reason && (
        <p class="dim">
          {status.state}: {status.reason}
          {status.by ? ` (by ${status.by})` : ""}
        </p>
      )}
    </aside>
  );
}
