// The page of the broken rules of a run.
import { enc, runPath, useApi, useRuns } from "./core";
import { A, Load } from "./parts";
import { RunHead } from "./head";
import { Events } from "./timeline";
import type { RunView } from "./api";

export function AlertsPage({ run }: { run: string }) {
  const version = useRuns([run]);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  return (
    <>
      <RunHead run={run} view={view.data} />
      <Load of={view}>
        {(v) => (
          <>
            <h2>Rules that are broken now</h2>
            {v.alerts.length ? (
              <ul class="plain">
                {v.alerts.map((a) => (
                  <li key={a} class="bad">
                    ⚠ {a}
                  </li>
                ))}
              </ul>
            ) : (
              <p class="dim">
                None{v.step ? ` after step ${v.step}` : ""}. The limits are the keys below{" "}
                <A href={runPath(run, "config") + "?q=watch."}>watch</A> of the configuration.
              </p>
            )}
            <h2>Firings</h2>
            <Events run={run} version={version} kind="alert" />
          </>
        )}
      </Load>
    </>
  );
}
