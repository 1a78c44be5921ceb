package jobs

import (
	"regexp"
	"slices"

	"github.com/hashicorp/nomad/api"
)

var (
	variableOf = regexp.MustCompile(`nomadVar "([^"]+)"`)
	itemOf     = regexp.MustCompile(`\{\{ \.([a-z_]+) \}\}`)
)

// Secrets returns the items that the templates of a job read, by the path of their
// variable. A task waits for ever for a missing item.
func Secrets(j *api.Job) map[string][]string {
	out := map[string][]string{}
	for _, g := range j.TaskGroups {
		for _, t := range g.Tasks {
			for _, template := range t.Templates {
				text := deref(template.EmbeddedTmpl)
				variable := variableOf.FindStringSubmatch(text)
				if variable == nil {
					continue
				}
				for _, item := range itemOf.FindAllStringSubmatch(text, -1) {
					if !slices.Contains(out[variable[1]], item[1]) {
						out[variable[1]] = append(out[variable[1]], item[1])
					}
				}
			}
		}
	}
	for path := range out {
		slices.Sort(out[path])
	}
	return out
}
