package pyfile

import (
	"regexp"
	"slices"
	"strings"
)

// argument is the first line about a parameter: "name: text" or "name (type): text".
var argument = regexp.MustCompile(`^(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$`)

// readDoc splits a docstring in Google's form into what it says of the function and of
// each parameter. Line ends become spaces.
func readDoc(doc string) (about string, params map[string]string) {
	params = map[string]string{}
	section, name, indent := "", "", 0
	for _, line := range strings.Split(doc, "\n") {
		trimmed := strings.TrimSpace(line)
		if slices.Contains([]string{"Args:", "Arguments:", "Parameters:", "Returns:", "Return:", "Raises:", "Yields:", "Example:", "Examples:"}, trimmed) {
			section, name, indent = trimmed, "", 0
			continue
		}
		switch section {
		case "":
			about = strings.TrimSpace(about + " " + trimmed)
		case "Args:", "Arguments:", "Parameters:":
			depth := len(line) - len(strings.TrimLeft(line, " \t"))
			if m := argument.FindStringSubmatch(trimmed); m != nil && (indent == 0 || depth <= indent) {
				name, indent, trimmed = m[1], depth, m[2]
			}
			if name != "" && trimmed != "" {
				params[name] = strings.TrimSpace(params[name] + " " + trimmed)
			}
		default: // the policy does not see it
		}
	}
	return strings.Join(strings.Fields(about), " "), params
}
