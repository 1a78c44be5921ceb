package jobs

import (
	_ "embed"
	"net"
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
	if url := (wire{b}).postgresURL(); url != "" { // any node will do
		p.args = append([]string{"--postgres", url}, p.args...)
		p.secrets = map[string]string{"PGPASSWORD": ItemPostgresPassword}
	} else {
		p.args = append([]string{"--db", Folder(b, p.name)}, p.args...)
	}
	return alone(form{b}.job(p))
}

// Folder is what a role keeps on the disk of its node and finds there again; "" for nothing.
func Folder(b Build, role string) string {
	switch {
	case role == "postgres":
		return path.Join(b.Data, "postgres")
	case role == "objectstore":
		return path.Join(b.Data, "objects")
	case role == "metrics":
		return path.Join(b.Data, "prometheus")
	case role == "temporal" && wire{b}.postgresURL() == "":
		return path.Join(b.Data, "temporal.db")
	default:
		return ""
	}
}

// postgresUser is the account that the job postgres makes, and that Temporal uses.
const postgresUser = "temper"

// postgresURL is the database of Temporal; "" for a file.
func (b wire) postgresURL() string {
	if b.Roles.Postgres.Count == 0 {
		return b.Postgres
	}
	return "postgres://" + postgresUser + "@" + net.JoinHostPort(loopback, strconv.Itoa(b.Ports.Postgres)) + "/temporal?sslmode=disable"
}

// PostgresServer is a Postgres as the node's system has it, on one folder. It listens on the
// loopback address alone, and makes its databases and its account when the folder is new.
func (b Build) PostgresServer() *api.Job {
	return alone(form{b}.job(process{
		name: "postgres", role: b.Roles.Postgres, program: "/bin/sh", args: []string{"${NOMAD_TASK_DIR}/" + filePostgres},
		env: map[string]string{
			"PGDATA": Folder(b, "postgres"), "PGUSER": postgresUser, "PGPORT": "${NOMAD_PORT_" + portAPI + "}", "POSTGRES_BIN": b.Programs.Postgres,
		},
		ports: []api.Port{{Label: portAPI, Value: b.Ports.Postgres}},
		serve: portAPI, check: open(),
		secrets: map[string]string{"PGPASSWORD": ItemPostgresPassword},
		texts:   map[string]string{filePostgres: startPostgres},
		signal:  "SIGINT", // ends sessions, and loses nothing; SIGTERM waits until they end by themselves
	}))
}

const filePostgres = "postgres.sh"

// startPostgres makes the folder where there is none, all of it or nothing, and becomes the
// server. Postgres refuses to run as root.
//
//go:embed postgres.sh
var startPostgres string

// ObjectStore is the S3 server on one folder.
func (b Build) ObjectStore() *api.Job {
	p := process{
		name: "objectstore", role: b.Roles.ObjectStore, command: "s3d",
		args:  []string{"--dir", Folder(b, "objectstore"), "--listen", wire{b}.address(portAPI), "--bucket", bucket},
		ports: []api.Port{{Label: portAPI, Value: b.Ports.ObjectStore}},
		serve: portAPI, check: open(),
		secrets: map[string]string{"AWS_ACCESS_KEY_ID": ItemAccessKey, "AWS_SECRET_ACCESS_KEY": ItemSecretKey},
	}
	if b.TLS {
		p.args = append(p.args, "--tls-cert", secret(fileCert), "--tls-key", secret(fileKey))
		p.files = map[string]string{fileCert: ItemCert, fileKey: ItemKey}
	}
	j := alone(form{b}.job(p))
	for _, t := range j.TaskGroups[0].Tasks[0].Templates {
		t.ChangeMode = new("restart") // it reads its certificate when it starts
	}
	return j
}

// UI is the dashboard. Whoever reaches it may read, so that it stays on its machine.
func (b Build) UI() *api.Job {
	p := poller{b}.knows("ui", b.Roles.UI, []string{
		"ui", "--listen", loopback + ":${NOMAD_PORT_" + portUI + "}", "--health", loopback + ":${NOMAD_PORT_" + portHealth + "}",
		"--ui", net.JoinHostPort(loopback, strconv.Itoa(b.Ports.TemporalUI)),
	})
	p.ports = []api.Port{{Label: portUI, Value: b.Ports.UI}, {Label: portHealth}}
	p.serve = portUI
	p.secrets["TEMPER_UI_TOKEN"] = ItemUIToken
	return form{b}.job(p)
}

const bucket = "temper"

// alone makes a job stop its old instance before a new one starts: two must not have one
// folder.
func alone(j *api.Job) *api.Job {
	j.TaskGroups[0].Update.Canary = new(0)
	return j
}

// storeURL is the store of the cluster; address is host:port of its own server, and ca the
// file with the cluster's authority.
func (b wire) storeURL(address, ca string) string {
	if b.Store != "" {
		return b.Store
	}
	url := "s3://" + bucket + "?endpoint=" + b.scheme() + "://" + address + "&path_style=true&region=us-east-1"
	if b.TLS {
		url += "&ca=" + ca
	}
	return url
}

// StoreAt is the store's URL for a client; address is host:port of the cluster's own server.
func (b Build) StoreAt(address, ca string) string { return wire{b}.storeURL(address, ca) }
