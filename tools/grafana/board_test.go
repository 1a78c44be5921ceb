// Package grafana_test checks the board of deploy/grafana by the types that Grafana generates from its own schemas.
package grafana_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

const file = "../../deploy/grafana/board.json"

// model is a type of Grafana's that decodes strictly: a field that it does not know, and one that it wants and
// does not find, are errors.
type model interface {
	UnmarshalJSONStrict(raw []byte) error
	Validate() error
}

func decode(raw json.RawMessage, into model) error {
	if len(raw) == 0 {
		return fmt.Errorf("%T is missing", into)
	}
	err := into.UnmarshalJSONStrict(raw)
	if none := (cog.BuildErrors)(nil); errors.As(err, &none) && len(none) == 0 { // an empty list is no error, and not nil
		err = nil
	}
	return errors.Join(err, into.Validate())
}

// panel is one of the board. Grafana's own type holds what all kinds of panels have; options, look of series and
// queries have types by their kinds.
type panel struct {
	dashboard.Panel
	queries []prometheus.Dataquery
}

// check decodes a board with all that is in it.
func check(text []byte) (panels []panel, err error) {
	errs := []error{decode(text, &dashboard.Dashboard{})} //nolint:staticcheck // the form of files that every Grafana takes; the second one is of its newest servers
	var parts struct{ Panels []json.RawMessage }
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, err
	}
	for i, raw := range parts.Panels {
		p, err := checkPanel(raw)
		if err != nil {
			err = fmt.Errorf("panel %d: %w", i, err)
		}
		panels, errs = append(panels, p), append(errs, err)
	}
	return panels, errors.Join(errs...)
}

func checkPanel(raw json.RawMessage) (p panel, err error) {
	var parts struct {
		Type        string
		Options     json.RawMessage
		FieldConfig struct {
			Defaults struct{ Custom json.RawMessage }
		}
		Targets []json.RawMessage
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return p, err
	}
	if parts.Type != "timeseries" {
		return p, fmt.Errorf("its type is %q, and this check knows no other than timeseries", parts.Type)
	}
	errs := []error{decode(raw, &p.Panel), decode(parts.Options, &timeseries.Options{}), decode(parts.FieldConfig.Defaults.Custom, &timeseries.FieldConfig{})}
	for _, target := range parts.Targets {
		var q prometheus.Dataquery
		errs = append(errs, decode(target, &q))
		p.queries = append(p.queries, q)
	}
	return p, errors.Join(errs...)
}

func TestBoard(t *testing.T) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	panels, err := check(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(panels) < 5 {
		t.Errorf("the board has %d panels", len(panels))
	}
	taken, ids := map[string]string{}, map[uint32]bool{}
	for _, p := range panels {
		panelIsWhole(t, p)
		place(t, p, taken)
		if p.Id == nil || ids[*p.Id] {
			t.Errorf("panel %q has no id of its own", *p.Title)
			continue
		}
		ids[*p.Id] = true
	}
}

// labelOf is a label in a legend.
var labelOf = regexp.MustCompile(`{{(\w+)}}`)

// panelIsWhole: it asks something, of the data source that is chosen on top, and says what it shows.
func panelIsWhole(t *testing.T, p panel) {
	t.Helper()
	if p.Title == nil || *p.Title == "" || p.Description == nil || *p.Description == "" {
		t.Fatalf("panel %+v has no title or no description", p)
	}
	if p.Datasource == nil || p.Datasource.Uid == nil || *p.Datasource.Uid != "${source}" {
		t.Errorf("panel %q asks another source than the one that is chosen", *p.Title)
	}
	refs := map[string]bool{}
	for _, q := range p.queries {
		if q.Expr == "" || q.LegendFormat == nil || q.RefId == nil || refs[*q.RefId] {
			t.Errorf("panel %q: query %+v", *p.Title, q)
			continue
		}
		refs[*q.RefId] = true
		for _, label := range labelOf.FindAllStringSubmatch(*q.LegendFormat, -1) {
			if strings.Contains(q.Expr, "sum") && !strings.Contains(q.Expr, label[1]) {
				t.Errorf("panel %q: %s drops the label %s of its legend", *p.Title, q.Expr, label[1])
			}
		}
	}
	if len(refs) == 0 {
		t.Errorf("panel %q asks nothing", *p.Title)
	}
}

// place wants every panel on the grid of 24 columns, and none over another.
func place(t *testing.T, p panel, taken map[string]string) {
	t.Helper()
	g := p.GridPos
	if g == nil || g.W == 0 || g.H == 0 || g.X+g.W > 24 {
		t.Errorf("panel %q lies at %+v", *p.Title, g)
		return
	}
	for x := g.X; x < g.X+g.W; x++ {
		for y := g.Y; y < g.Y+g.H; y++ {
			cell := fmt.Sprint(x, ",", y)
			if other := taken[cell]; other != "" {
				t.Errorf("panel %q lies over %q", *p.Title, other)
				return
			}
			taken[cell] = *p.Title
		}
	}
}

// TestCheckRefuses: what Grafana would drop without a word does not pass.
func TestCheckRefuses(t *testing.T) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"a field of the board": {`"schemaVersion":`, `"schemeVersion": 1, "schemaVersion":`},
		"a field of a panel":   {`"description":`, `"describes":`},
		"an option of a panel": {`"placement": "bottom"`, `"place": "bottom"`},
		"a missing option":     {`"showLegend": true`, `"isVisible": true`},
		"a field of a query":   {`"legendFormat":`, `"legend":`},
		"the look of a series": {`"fillOpacity":`, `"opacity":`},
		"a kind of value":      {`"min": 0`, `"min": "none"`},
		"another kind":         {`"type": "timeseries"`, `"type": "timeserie"`},
	} {
		changed := strings.Replace(string(text), change[0], change[1], 1)
		if changed == string(text) {
			t.Fatalf("%s: the board has no %s", name, change[0])
		}
		if _, err := check([]byte(changed)); err == nil {
			t.Errorf("%s: %s passes", name, change[1])
		}
	}
}
