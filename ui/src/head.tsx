// The head of every page of a run.
import { enc, runPath, seconds, useApi, useEvery } from "./core";
import { A, State } from "./parts";
import { Drawer, requests, steering } from "./steering";
import type { About, RunStatus, RunView } from "./api";

// RunHead is above every page of a run.
export function RunHead({ run, view }: { run: string; view?: RunView }) {
  const live = view && !["done", "stopped", "failed"].includes(view.state);
  const about = useApi<About>("/about");
  const tick = useEvery(3000);
  const status = useApi<RunStatus>(
    live && about.data && !about.data.steering ? `/runs/${enc(run)}/status` : null,
    tick,
  );
  const s = status.data;
  return (
    <div class="run-head">
      <h1>
        <A href={runPath(run)}>{run}</A>
      </h1>
      {view && (
        <>
          <State state={s?.state ?? view.state} />
          {live && status.error && <span class="bad small">{status.error.message}</span>}
          <span>
            step <b>{s?.step || view.step}</b> of {view.num_steps}
          </span>
          {view.stage && <span class="dim">{view.stage}</span>}
          {s && s.eta_seconds > 0 && live && <span class="dim">{seconds(s.eta_seconds)} left</span>}
          {view.alerts.length > 0 && (
            <A href={runPath(run, "alerts")} class="bad">
              ⚠ {view.alerts.length} {view.alerts.length === 1 ? "alert" : "alerts"}
            </A>
          )}
          <button
            class={live ? "primary steer" : "steer"}
            onClick={() => {
              steering.value = !steering.value;
            }}
            aria-expanded={steering.value}
          >
            {live ? "steer" : "fork"}
          </button>
        </>
      )}
      {steering.value && view && (
        <Drawer key={requests.value} run={run} view={view} why={about.data?.steering} status={s} />
      )}
    </div>
  );
}

export const Section = ({ title, children }: { title: string; children: preact.ComponentChildren }) => (
  <section>
    <h2>{title}</h2>
    {children}
  </section>
);
