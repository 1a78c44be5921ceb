package main

import (
	"bytes"
	"html/template"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"
)

// runsPath is where a browser finds the list of runs.
const runsPath = "/runs"

// runsQuery leaves out what is not of the service, and evaluations.
const runsQuery = `WorkflowType="RLRun" OR WorkflowType="RLStage" OR WorkflowType="Retrain"`

// runsColumns show how far each run and stage is.
var runsColumns = []column{{"Status"}, {"Workflow ID"}, {"RunStatus"}, {"Stage"}, {"Step"}, {"Reward"}, {"Type"}, {"Start"}, {"End"}}

type column struct {
	Label string `json:"label"`
}

// runsTemplate sets the columns where the UI keeps them, which is in the browser and
// not in its configuration, for who has chosen none; then it goes on to the list.
var runsTemplate = template.Must(template.New("runs").Parse(`<!doctype html>
<title>Runs</title>
<script>
const key = "namespace-workflow-table-columns", chosen = JSON.parse(localStorage.getItem(key) || "{}");
if (!(chosen[{{.Namespace}}] || []).length) {
  chosen[{{.Namespace}}] = {{.Columns}};
  localStorage.setItem(key, JSON.stringify(chosen));
}
location.replace({{.List}});
</script>
<noscript><a href="{{.List}}">The list of runs</a></noscript>
`))

// setRunsRoute serves the page that leads to the list of runs.
func setRunsRoute(e *echo.Echo, namespace string) error {
	list := url.URL{Path: "/namespaces/" + namespace + "/workflows", RawQuery: url.Values{"query": {runsQuery}}.Encode()}
	var page bytes.Buffer
	if err := runsTemplate.Execute(&page, struct {
		Namespace, List string
		Columns         []column
	}{namespace, list.String(), runsColumns}); err != nil {
		return err
	}
	e.GET(runsPath, func(c echo.Context) error { return c.HTMLBlob(http.StatusOK, page.Bytes()) })
	return nil
}
