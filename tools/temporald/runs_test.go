package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
)

// TestRunsPage: the page names the columns to the UI and leads to the list of the
// namespace, whose name cannot break out of the script.
func TestRunsPage(t *testing.T) {
	e := echo.New()
	if err := setRunsRoute(e, `a"b</script>`); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	e.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/runs", nil))
	page := answer.Body.String()
	for _, want := range []string{`{"label":"Stage"},{"label":"Step"},{"label":"Reward"}`, `"namespace-workflow-table-columns"`, `%3D%22RLRun%22`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
	if answer.Code != http.StatusOK || strings.Count(page, "</script>") != 1 {
		t.Errorf("status %d, page:\n%s", answer.Code, page)
	}
}
