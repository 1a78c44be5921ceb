// The pages of the API and of licences.
import { useEffect, useState } from "preact/hooks";
import { A, Pill } from "./parts";

export function ApiPage() {
  const [doc, set] = useState<{
    paths: Record<
      string,
      Record<string, { summary: string; parameters?: { name: string; in: string; description?: string }[] }>
    >;
  } | null>(null);
  useEffect(() => {
    void fetch("/openapi.json")
      .then((r) => r.json())
      .then(set);
  }, []);
  return (
    <>
      <h1>API</h1>
      <p>
        The same requests that this page makes. <a href="/openapi.json">openapi.json</a> describes them (OpenAPI 3.1).
        Commands need <code>Authorization: Bearer TOKEN</code>.
      </p>
      {doc && (
        <div class="scroll" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>method</th>
                <th>path</th>
                <th>what</th>
              </tr>
            </thead>
            <tbody>
              {Object.entries(doc.paths).flatMap(([p, ms]) =>
                Object.entries(ms).map(([m, o]) => (
                  <tr key={p + m}>
                    <td>
                      <Pill kind={m === "get" ? "run" : "warn"}>{m.toUpperCase()}</Pill>
                    </td>
                    <td class="mono">
                      {p}
                      {o.parameters?.filter((x) => x.in === "query").length
                        ? "?" +
                          o.parameters
                            .filter((x) => x.in === "query")
                            .map((x) => x.name)
                            .join("&")
                        : ""}
                    </td>
                    <td>{o.summary}</td>
                  </tr>
                )),
              )}
            </tbody>
          </table>
        </div>
      )}
      <p>
        <A href="/licences">Licences</A> of the libraries in this page.
      </p>
    </>
  );
}

export function LicencesPage() {
  const [text, set] = useState("");
  useEffect(() => {
    void fetch("/licences.txt")
      .then((r) => r.text())
      .then(set);
  }, []);
  return (
    <>
      <h1>Licences</h1>
      <pre class="text">{text}</pre>
    </>
  );
}
