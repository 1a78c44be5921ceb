// The page of the broken rules of all runs.
import { runPath, shown, useApi, useEvery } from "./core";
import { A, Load, State } from "./parts";
import type { RunAlert } from "./api";

export function AllAlertsPage() {
  const a = useApi<RunAlert[]>("/alerts", useEvery(4000));
  return (
    <>
      <h1>Alerts</h1>
      <Load of={a}>
        {(list) =>
          list.length ? (
            <div class="scroll" tabIndex={0}>
              <table>
                <thead>
                  <tr>
                    <th>run</th>
                    <th>state</th>
                    <th class="right">step</th>
                    <th>rule that is broken</th>
                  </tr>
                </thead>
                <tbody>
                  {list.map((x) => (
                    <tr key={x.run_id}>
                      <td>
                        <A href={runPath(x.run_id, "alerts")}>{x.run_id}</A>
                      </td>
                      <td>
                        <State state={x.state} />
                      </td>
                      <td class="right">{x.step}</td>
                      <td class="bad">⚠ {shown(x.text)}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          ) : (
            <p class="dim">No run has a broken rule after its newest step.</p>
          )
        }
      </Load>
    </>
  );
}
