package jobs

import (
	"path"
	"strconv"

	"github.com/hashicorp/nomad/api"
)

// Ports by their labels in a job.
const (
	portAPI    = "api"
	portUI     = "ui"
	portHealth = "health"
)

// Temporal is the embedded server on one file, or on databases of Postgres. It has no
// authentication, so that it listens on the loopback address alone.
func (b Build) Temporal() *api.Job {
	p := process{
		name: "temporal", role: b.Roles.Temporal, command: "temporald",
		args: []string{
			"--ip", loopback, "--port", "${NOMAD_PORT_" + portAPI + "}", "--ui-port", "${NOMAD_PORT_" + portUI + "}",
		},
		ports: []api.Port{{Label: portAPI, Value: b.Ports.Temporal}, {Label: portUI, Value: b.Ports.TemporalUI}},
		serve: portAPI, check: open(),
	}
	if b.Postgres != "" { // any node will do
		p.args = append([]string{"--postgres", b.Postgres}, p.args...)
		p.secrets = map[string]string{"PGPASSWORD": ItemPostgresPassword}
	} else {
		p.args = append([]string{"--db", path.Join(b.Data, "temporal.db")}, p.args...)
		p.volume = true
	}
	return alone(form{b}.job(p))
}

// ObjectStore is the S3 server on one folder.
func (b Build) ObjectStore() *api.Job {
	return alone(form{b}.job(process{
		name: "objectstore", role: b.Roles.ObjectStore, command: "s3d",
		args:  []string{"--dir", path.Join(b.Data, "objects"), "--listen", wire{b}.address(portAPI), "--bucket", bucket},
		ports: []api.Port{{Label: portAPI, Value: b.Ports.ObjectStore}},
		serve: portAPI, check: open(), volume: true,
		secrets: map[string]string{"AWS_ACCESS_KEY_ID": ItemAccessKey, "AWS_SECRET_ACCESS_KEY": ItemSecretKey},
	}))
}

const bucket = "temper"

// alone makes a job stop its old instance before a new one starts: two must not have one
// folder.
func alone(j *api.Job) *api.Job {
	j.TaskGroups[0].Update.Canary = new(0)
	return j
}

// storeURL is the store of the cluster; address is host:port of its own server.
func (b wire) storeURL(address string) string {
	if b.Store != "" {
		return b.Store
	}
	return "s3://" + bucket + "?endpoint=http://" + address + "&path_style=true&region=us-east-1"
}

// LocalStore is the store's URL for a client on the machine of the object store.
func (b Build) LocalStore() string {
	return wire{b}.storeURL(loopback + ":" + strconv.Itoa(b.Ports.ObjectStore))
}
