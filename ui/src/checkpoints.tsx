// The page of the checkpoints of a run.
import { bytes, enc, num, useApi, useRuns } from "./core";
import { Load } from "./parts";
import { RunHead } from "./head";
import { Storage } from "./notes";
import { accepted, openDrawer } from "./steering";
import type { CheckpointsView, RunView } from "./api";

export function CheckpointsPage({ run }: { run: string }) {
  const version = useRuns([run]);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  const c = useApi<CheckpointsView>(`/runs/${enc(run)}/checkpoints`, `${version}.${accepted.value}`);
  return (
    <>
      <RunHead run={run} view={view.data} />
      <h2>Checkpoints</h2>
      <Load of={c}>
        {(v) => (
          <>
            {!v.checkpoints.length && <p class="dim">None has been saved yet.</p>}
            {v.checkpoints.length > 0 && (
              <div class="scroll" tabIndex={0}>
                <table>
                  <thead>
                    <tr>
                      <th class="right">step</th>
                      <th class="right" title="counts all updates, those of SFT too">
                        cursor
                      </th>
                      <th class="right">size</th>
                      <th class="right">reward of the step after</th>
                      <th>why it stays</th>
                      <th>go on from it</th>
                      <th>on the command line</th>
                    </tr>
                  </thead>
                  <tbody>
                    {v.checkpoints.map((k) => (
                      <tr key={k.cursor}>
                        <td class="right">{k.step}</td>
                        <td class="right">{k.cursor}</td>
                        <td class="right">{k.damage ? <span class="bad">{k.damage}</span> : bytes(k.bytes)}</td>
                        <td class="right">{k.reward === undefined ? "–" : num(k.reward)}</td>
                        <td>{k.kept}</td>
                        <td class="nowrap">
                          <button onClick={() => openDrawer("fork", k.step)}>fork</button>{" "}
                          <button onClick={() => openDrawer(k.kept.includes("pin") ? "unpin" : "pin", k.step)}>
                            {k.kept.includes("pin") ? "unpin" : "pin"}
                          </button>
                        </td>
                        <td>
                          <code>
                            temper run fork {run} --step {k.step}
                          </code>
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )}
            <p class="dim small">{v.folder}</p>
            <h2>Policies</h2>
            <p>{v.policies.length ? v.policies.map((p) => "v" + p).join(", ") : "None has been published yet."}</p>
            <Storage run={run} />
          </>
        )}
      </Load>
    </>
  );
}
