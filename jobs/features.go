package jobs

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// LeastVersion is the oldest server that supports every job: Nomad services with checks
// that restart, variables, and node pools.
const LeastVersion = "1.6.0"

// features maps fields of a job to the first version whose servers keep them. An older
// server drops them without an error.
var features = map[string]string{
	"Job.UI":                             "1.8.0",
	"Job.VersionTag":                     "1.9.0",
	"TaskGroup.Disconnect":               "1.8.0",
	"TaskGroup.MaxRunDuration":           "2.0.3",
	"Task.Identities":                    "1.7.0",
	"Task.Actions":                       "1.7.0",
	"Task.Schedule":                      "1.8.0",
	"Task.Secrets":                       "1.11.0",
	"Task.Consul":                        "1.7.0",
	"WorkloadIdentity.Audience":          "1.7.0",
	"WorkloadIdentity.ChangeMode":        "1.7.0",
	"WorkloadIdentity.ChangeSignal":      "1.7.0",
	"WorkloadIdentity.ServiceName":       "1.7.0",
	"WorkloadIdentity.TTL":               "1.7.0",
	"WorkloadIdentity.Filepath":          "1.10.0",
	"WorkloadIdentity.ExtraClaims":       "1.11.0",
	"Resources.NUMA":                     "1.7.0",
	"Resources.SecretsMB":                "1.10.0",
	"VolumeRequest.Sticky":               "1.10.0",
	"Template.Once":                      "1.10.0",
	"Service.Identity":                   "1.7.0",
	"Service.Weights":                    "1.10.0",
	"Service.Kind":                       "1.10.0",
	"ServiceCheck.Notes":                 "1.8.0",
	"ServiceCheck.TLSServerName":         "1.7.0",
	"NetworkResource.CNI":                "1.9.0",
	"Port.IgnoreCollision":               "1.9.0",
	"VolumeMount.SELinuxLabel":           "1.8.0",
	"ServiceCheck.FailuresBeforeWarning": "1.7.0",
}

// Feature is a field of a job that not every server keeps.
type Feature struct {
	// Field is its path in the job, such as TaskGroups[0].Disconnect.
	Field string
	// Since is the first version that keeps it.
	Since string
}

// String returns the field with its version.
func (f Feature) String() string { return fmt.Sprintf("%s (Nomad %s or newer)", f.Field, f.Since) }

// Features returns the fields of a job that some older servers drop.
func Features(j *api.Job) []Feature {
	var out []Feature
	walk(reflect.ValueOf(j).Elem(), "", &out)
	slices.SortFunc(out, func(a, b Feature) int { return strings.Compare(a.Field, b.Field) })
	return out
}

// walk visits every field that is set.
func walk(v reflect.Value, path string, out *[]Feature) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			walk(v.Elem(), path, out)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i), out)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() || v.Field(i).IsZero() {
				continue
			}
			at := strings.TrimPrefix(path+"."+field.Name, ".")
			if since, ok := features[v.Type().Name()+"."+field.Name]; ok {
				*out = append(*out, Feature{Field: at, Since: since})
			}
			walk(v.Field(i), at, out)
		}
	default: // a value, or a map of texts
	}
}
