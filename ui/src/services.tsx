// The page of the processes of the service.
import { age, num, query, setQuery, shown, useApi, useEvery } from "./core";
import { Load, Note, Pill } from "./parts";
import type { ServicesView } from "./api";

const processKinds: Record<string, string> = {
  healthy: "good",
  starting: "run",
  waiting: "dim",
  stopped: "dim",
  stopping: "warn",
  backoff: "warn",
  unhealthy: "bad",
  failed: "bad",
};

export function ServicesPage() {
  const s = useApi<ServicesView>("/services", useEvery(3000));
  const filter = query("q").toLowerCase();
  return (
    <>
      <h1>Services</h1>
      <Load of={s}>
        {(v) => (
          <>
            {v.remark && <Note kind="dim">{v.remark}</Note>}
            {v.processes.length > 0 && (
              <div class="scroll" tabIndex={0}>
                <table>
                  <thead>
                    <tr>
                      <th>process</th>
                      <th>state</th>
                      <th class="right">pid</th>
                      <th class="right">restarts</th>
                      <th>since</th>
                      <th>how the one before it ended</th>
                    </tr>
                  </thead>
                  <tbody>
                    {v.processes.map((p) => (
                      <tr key={p.name}>
                        <td>
                          <b>{p.name}</b>
                        </td>
                        <td>
                          <Pill kind={p.trouble ? "bad" : (processKinds[p.state] ?? "dim")}>{p.state}</Pill>
                          {p.trouble && <div class="bad small">{shown(p.trouble)}</div>}
                        </td>
                        <td class="right">{p.pid || "–"}</td>
                        <td class="right">{p.restarts}</td>
                        <td class="nowrap" title={p.since}>
                          {age(p.since)}
                        </td>
                        <td>{p.last_exit ? shown(p.last_exit) : "–"}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )}
            {v.processes.some((p) => p.gauges.length > 0) && (
              <>
                <h2>What they say of themselves</h2>
                <div class="bar">
                  <input
                    id="search"
                    type="search"
                    placeholder="part of a name, such as queue"
                    aria-label="filter numbers"
                    value={query("q")}
                    onInput={(e) => setQuery({ q: e.currentTarget.value })}
                  />
                </div>
                {v.processes
                  .filter((p) => p.gauges.length > 0)
                  .map((p) => (
                    <section key={p.name}>
                      <h3>{p.name}</h3>
                      <div class="scroll" tabIndex={0}>
                        <table class="config">
                          <tbody>
                            {p.gauges
                              .filter((g) => g.name.toLowerCase().includes(filter))
                              .map((g) => (
                                <tr key={g.name}>
                                  <td class="mono" title={g.help}>
                                    {g.name}
                                  </td>
                                  <td class="right">{num(g.value, 6)}</td>
                                </tr>
                              ))}
                          </tbody>
                        </table>
                      </div>
                    </section>
                  ))}
              </>
            )}
          </>
        )}
      </Load>
    </>
  );
}
