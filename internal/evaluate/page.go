package evaluate

import (
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
)

//go:embed page.html.tmpl
var pageText string

// Page is the content of the HTML page.
type Page struct {
	Title string
	// Notes stand below the title, a line each.
	Notes        []string
	Options      Options
	Summary      EntropySummary
	Trajectories []Trajectory
}

// WriteHTML writes one page that needs nothing else. Texts of models and tools are shown
// as text, control characters as their codes.
func WriteHTML(out io.Writer, p Page) error {
	highest := 0.0
	for _, t := range p.Trajectories {
		for _, k := range t.Tokens {
			highest = max(highest, k.Entropy)
		}
	}
	page, err := template.New("page").Funcs(template.FuncMap{
		"percent":  func(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + " %" },
		"nats":     func(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) },
		"shade":    func(k Token) template.CSS { return shade(k, highest) },
		"visible":  visible,
		"title":    pageTitle,
		"distance": distanceText,
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("page of the analysis: %w", err)
	}
	return page.Execute(out, p)
}

// shade is darker for a more uncertain token.
func shade(k Token, highest float64) template.CSS {
	if !k.Sampled || highest == 0 {
		return ""
	}
	//nolint:gosec // a number
	return template.CSS("--e:" + strconv.FormatFloat(math.Sqrt(k.Entropy/highest), 'f', 2, 64))
}

// pageTitle returns the title that appears at the pointer over a token.
func pageTitle(k Token) string {
	if !k.Sampled {
		return "of a tool"
	}
	text := fmt.Sprintf("%s, entropy %.3f, log-probability %.3f, turn %d", k.Class, k.Entropy, k.Logprob, k.Turn+1)
	if k.Since >= 0 {
		text += fmt.Sprintf(", %d after the tool", k.Since)
	}
	return text
}

func distanceText(d Distance) string {
	switch {
	case d.To >= 1<<30:
		return fmt.Sprintf("from %d", d.From)
	case d.To == d.From+1:
		return strconv.Itoa(d.From)
	default:
		return fmt.Sprintf("%d to %d", d.From, d.To-1)
	}
}

// visible writes control characters and marks of direction as their codes, but for the
// newline.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n':
			b.WriteString("\n")
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0xfeff:
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
