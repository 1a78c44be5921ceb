// The page of the time line of a run, and its events.
import { clock, enc, runPath, seconds, useApi, useRuns } from "./core";
import { A, Load, Pill } from "./parts";
import { RunHead } from "./head";
import type { RunView, TimelineView } from "./api";

export function Events({ run, version, most, kind }: { run: string; version: number; most?: number; kind?: string }) {
  const t = useApi<TimelineView>(`/runs/${enc(run)}/timeline`, version);
  return (
    <Load of={t}>
      {(v) => {
        const marks = v.marks
          .filter((m) => !kind || m.kind === kind)
          .reverse()
          .slice(0, most);
        if (!marks.length) return <p class="dim">None yet.</p>;
        return (
          <ul class="events">
            {marks.map((m, i) => (
              <li key={i}>
                <span class="dim small" title={clock(m.at)}>
                  {new Date(m.at).toLocaleTimeString()}
                </span>{" "}
                <Pill kind={markKinds[m.kind] ?? "dim"}>{m.kind}</Pill> {m.text}
              </li>
            ))}
          </ul>
        );
      }}
    </Load>
  );
}

const markKinds: Record<string, string> = {
  alert: "bad",
  fail: "bad",
  amend: "warn",
  pause: "warn",
  stop: "warn",
  repair: "warn",
  resume: "good",
  end: "good",
  stage: "run",
  checkpoint: "run",
};

export function TimelinePage({ run }: { run: string }) {
  const version = useRuns([run]);
  const view = useApi<RunView>(`/runs/${enc(run)}`, version);
  const t = useApi<TimelineView>(`/runs/${enc(run)}/timeline`, version);
  return (
    <>
      <RunHead run={run} view={view.data} />
      <h2>Time line</h2>
      <Load of={t}>
        {(v) => {
          const times = [
            ...v.spans.flatMap((s) => [Date.parse(s.start), Date.parse(s.end)]),
            ...v.marks.map((m) => Date.parse(m.at)),
          ].filter((x) => x > 0);
          if (!times.length) return <p class="dim">Nothing has happened yet.</p>;
          const a = Math.min(...times),
            b = Math.max(...times),
            width = Math.max(1, b - a),
            at = (t: string) => ((Date.parse(t) - a) / width) * 100;
          const lanes: [string, string][] = [
            ["sft", "SFT"],
            ["filter", "filter"],
            ["stage", "stages"],
            ["evaluation", "evaluations"],
            ["pause", "pauses"],
          ];
          return (
            <>
              <div class="timeline" role="list">
                {lanes
                  .filter(([k]) => v.spans.some((s) => s.kind === k))
                  .map(([k, name]) => (
                    <div class="lane" key={k} role="listitem">
                      <span class="lane-name">{name}</span>
                      <div class="lane-track">
                        {v.spans
                          .filter((s) => s.kind === k)
                          .map((s, i) => {
                            const bar = {
                              key: i,
                              class: "span span-" + k + (s.open ? " open" : ""),
                              style: {
                                left: `min(${at(s.start)}%, 100% - 10px)`,
                                width: Math.max(0.4, at(s.end) - at(s.start)) + "%",
                              },
                              title: `${s.name}: ${clock(s.start)}, ${seconds((Date.parse(s.end) - Date.parse(s.start)) / 1000)}${s.text ? ". " + s.text : ""}${s.link ? ". Opens the workflow in Temporal's UI" : ""}`,
                            };
                            return s.link ? (
                              <a {...bar} href={s.link} rel="noreferrer" aria-label={bar.title}>
                                <i>{s.name}</i>
                              </a>
                            ) : (
                              <div {...bar} tabIndex={0}>
                                <i>{s.name}</i>
                              </div>
                            );
                          })}
                      </div>
                    </div>
                  ))}
                <div class="lane" role="listitem">
                  <span class="lane-name">events</span>
                  <div class="lane-track marks">
                    {v.marks.map((m, i) => (
                      <i
                        key={i}
                        class={"mark mark-" + (markKinds[m.kind] ?? "dim")}
                        tabIndex={0}
                        style={{ left: `min(${at(m.at)}%, 100% - 4px)` }}
                        title={`${m.kind}: ${m.text} (${clock(m.at)})`}
                        aria-label={`${m.kind}: ${m.text}`}
                        role="img"
                      />
                    ))}
                  </div>
                </div>
                <div class="lane axis">
                  <span class="lane-name" />
                  <div class="lane-track">
                    <span>{clock(new Date(a).toISOString())}</span>
                    <span>{seconds(width / 1000)} in all</span>
                  </div>
                </div>
              </div>
              <h2>Spans</h2>
              <div class="scroll" tabIndex={0}>
                <table>
                  <thead>
                    <tr>
                      <th>what</th>
                      <th>name</th>
                      <th>began</th>
                      <th class="right">took</th>
                      <th>result</th>
                    </tr>
                  </thead>
                  <tbody>
                    {v.spans.map((s, i) => (
                      <tr key={i}>
                        <td>{s.kind}</td>
                        <td>
                          {s.kind === "stage" && s.step ? <A href={runPath(run, "steps", s.step)}>{s.name}</A> : s.name}
                        </td>
                        <td>{clock(s.start)}</td>
                        <td class="right">
                          {s.open ? "goes on" : seconds((Date.parse(s.end) - Date.parse(s.start)) / 1000)}
                        </td>
                        <td>{s.text}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
              <p class="dim small">Not recorded: {v.missing.join(", ")}.</p>
              <h2>Events</h2>
              <Events run={run} version={version} />
            </>
          );
        }}
      </Load>
    </>
  );
}
