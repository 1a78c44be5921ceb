// The page of the schedules of re-trainings.
import { clock, runPath, shown, useApi, useEvery } from "./core";
import { A, Load, Note, Pill } from "./parts";
import type { SchedulesView } from "./api";

export function SchedulesPage() {
  const s = useApi<SchedulesView>("/schedules", useEvery(10_000));
  return (
    <>
      <h1>Schedules</h1>
      <Load of={s}>
        {(v) => (
          <>
            {v.remark && <Note kind="dim">{v.remark}</Note>}
            {!v.remark && !v.schedules.length && (
              <div class="empty">
                <p>No schedule of re-trainings is there. One is made with:</p>
                <pre class="code">temper schedule create ID --cron '0 3 * * *' --config FILE --data FILE</pre>
              </div>
            )}
            {v.schedules.map((x) => (
              <section key={x.id} class="card">
                <h2>
                  {x.id} {x.paused ? <Pill kind="warn">paused</Pill> : <Pill kind="good">on</Pill>}
                </h2>
                <dl class="facts">
                  <dt>when</dt>
                  <dd>{x.when.join(", ") || "–"}</dd>
                  <dt>next</dt>
                  <dd>{x.next ? clock(x.next) : "never"}</dd>
                  <dt>good policy</dt>
                  <dd>{x.good ? <A href={runPath(x.good.split("@")[0])}>{x.good}</A> : "none yet"}</dd>
                  <dt>last</dt>
                  <dd>{x.last || "none has run"}</dd>
                  <dt>running</dt>
                  <dd>{x.running.length ? x.running.join(", ") : "none"}</dd>
                  {x.note && (
                    <>
                      <dt>note</dt>
                      <dd>{shown(x.note)}</dd>
                    </>
                  )}
                  {x.missed || x.skipped ? (
                    <>
                      <dt>left out</dt>
                      <dd>
                        {x.missed ?? 0} missed, {x.skipped ?? 0} skipped
                      </dd>
                    </>
                  ) : null}
                </dl>
                {x.events.length > 0 && (
                  <ul class="events">
                    {x.events.map((e, i) => (
                      <li key={i}>
                        <span class="dim small">{clock(e.at)}</span>{" "}
                        <Pill
                          kind={
                            e.kind === "fail" || e.kind === "refuse" ? "bad" : e.kind === "publish" ? "good" : "dim"
                          }
                        >
                          {e.kind}
                        </Pill>{" "}
                        {shown(e.text)}
                      </li>
                    ))}
                  </ul>
                )}
              </section>
            ))}
          </>
        )}
      </Load>
    </>
  );
}
