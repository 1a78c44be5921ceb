// The notes of a run and its use of the store.
import { useState } from "preact/hooks";
import { bytes, clock, enc, send, token, useApi } from "./core";
import { A, Load, Note, Pill, Text } from "./parts";
import { Section } from "./head";
import type { Notes as RunNotes, Usage } from "./api";

// Notes are what people say of the run: tags by which the list of runs filters, and a text.
export function Notes({ run, version }: { run: string; version: number }) {
  const [saved, setSaved] = useState(0);
  const notes = useApi<RunNotes>(`/runs/${enc(run)}/notes`, version * 1000 + saved);
  const [draft, setDraft] = useState<{ tags: string; text: string } | null>(null);
  const [failure, setFailure] = useState("");
  const save = (d: { tags: string; text: string }) =>
    send<RunNotes>(
      `/runs/${enc(run)}/notes`,
      { tags: d.tags.split(/[\s,]+/).filter(Boolean), text: d.text, time: new Date(0).toISOString() },
      "PUT",
    ).then(
      () => {
        setDraft(null);
        setFailure("");
        setSaved((n) => n + 1);
      },
      (e: Error) => setFailure(e.message),
    );
  return (
    <Section title="Notes">
      <Load of={notes}>
        {(v) =>
          draft === null ? (
            <>
              {v.tags.length > 0 && (
                <p>
                  {v.tags.map((t) => (
                    <span key={t}>
                      <A href={"/?filter=" + enc("tag:" + t)}>
                        <Pill kind="dim">{t}</Pill>
                      </A>{" "}
                    </span>
                  ))}
                </p>
              )}
              {v.text && <Text text={v.text} />}
              {!v.text && !v.tags.length && <p class="dim">None yet.</p>}
              <p class="dim small">
                {v.by && `${v.by}, ${clock(v.time ?? "")} `}
                <button class="link" onClick={() => setDraft({ tags: v.tags.join(" "), text: v.text })}>
                  change
                </button>
              </p>
            </>
          ) : (
            <form
              onSubmit={(e) => {
                e.preventDefault();
                void save(draft);
              }}
            >
              <label>
                tags{" "}
                <input
                  value={draft.tags}
                  maxLength={900}
                  placeholder="words with spaces between"
                  onInput={(e) => setDraft({ ...draft, tags: e.currentTarget.value })}
                />
              </label>
              <label>
                note{" "}
                <textarea
                  rows={5}
                  value={draft.text}
                  maxLength={20000}
                  onInput={(e) => setDraft({ ...draft, text: e.currentTarget.value })}
                />
              </label>
              {failure && <Note kind="bad">{failure}</Note>}
              {!token.value && <p class="dim small">This needs the token.</p>}
              <p>
                <button class="primary" type="submit">
                  store
                </button>{" "}
                <button
                  type="button"
                  onClick={() => {
                    setDraft(null);
                    setFailure("");
                  }}
                >
                  leave it
                </button>
              </p>
            </form>
          )
        }
      </Load>
    </Section>
  );
}

// Usage is what the run takes; it lists all objects, so it is asked for.
export function Storage({ run }: { run: string }) {
  const [asked, setAsked] = useState(false);
  const u = useApi<Usage>(asked ? `/runs/${enc(run)}/du` : null);
  return (
    <Section title="Storage">
      {!asked ? (
        <p>
          <button onClick={() => setAsked(true)}>measure</button>{" "}
          <span class="dim small">lists every object of the run</span>
        </p>
      ) : (
        <Load of={u}>
          {(v) => (
            <div class="scroll" tabIndex={0}>
              <table>
                <thead>
                  <tr>
                    <th>what</th>
                    <th class="right">objects</th>
                    <th class="right">size</th>
                    <th class="right">for each</th>
                  </tr>
                </thead>
                <tbody>
                  {v.kinds.map((k) => (
                    <tr key={k.kind}>
                      <td>{k.kind}</td>
                      <td class="right">{k.objects}</td>
                      <td class="right">{bytes(k.bytes)}</td>
                      <td class="right">{k.unit && k.count ? `${bytes(k.bytes / k.count)} a ${k.unit}` : ""}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </Load>
      )}
    </Section>
  );
}
