package jobs

import (
	_ "embed"
	"net"
	"path"
	"strconv"

	"github.com/hashicorp/nomad/api"

	"temper/internal/role"
)

// temporal is the embedded server on one file or on databases of Postgres. It has no
// authentication, so it listens only on the loopback address.
func temporal(b Build) process {
	p := newProcess(b, role.Of(role.Temporal))
	if url := postgresURL(b); url != "" { // it can run on any node
		p.args = []string{"--postgres", url}
		p.secrets = map[string]string{"PGPASSWORD": ItemPostgresPassword}
	} else {
		p.args = []string{"--db", p.folder}
	}
	p.args = append(p.args, "--ip", loopback, "--port", "${NOMAD_PORT_"+role.PortAPI+"}", "--ui-port", "${NOMAD_PORT_"+role.PortUI+"}")
	p.adjust = stopFirst
	return p
}

// Folder returns the folder of a role on the disk of its node, which keeps data between
// instances; "" for none.
func Folder(b Build, name string) string {
	row := role.Of(name)
	if row.Job == nil || row.Job.Folder == "" || name == role.Temporal && postgresURL(b) != "" {
		return ""
	}
	return path.Join(b.Data, row.Job.Folder)
}

// postgresUser is the account that the job postgres makes and Temporal uses.
const postgresUser = "temper"

// postgresURL returns the URL of Temporal's database; "" for a file.
func postgresURL(b Build) string {
	if b.Roles.Postgres.Count == 0 {
		return b.Postgres
	}
	return "postgres://" + postgresUser + "@" + net.JoinHostPort(loopback, strconv.Itoa(b.Ports.Postgres)) + "/temporal?sslmode=disable"
}

// postgres is a Postgres installed on the node, on one folder. It listens only on the
// loopback address, and makes its databases and its account in a new folder.
func postgres(b Build) process {
	p := newProcess(b, role.Of(role.Postgres), "${NOMAD_TASK_DIR}/"+filePostgres)
	p.systemProgram = "/bin/sh"
	p.env = map[string]string{
		"PGDATA": p.folder, "PGUSER": postgresUser, "PGPORT": "${NOMAD_PORT_" + role.PortAPI + "}", "POSTGRES_BIN": b.Programs.Postgres,
	}
	p.secrets = map[string]string{"PGPASSWORD": ItemPostgresPassword}
	p.texts = map[string]string{filePostgres: startPostgres}
	p.signal = "SIGINT" // ends sessions without a loss; SIGTERM would wait for their ends
	p.adjust = stopFirst
	return p
}

const filePostgres = "postgres.sh"

// startPostgres makes a missing folder, completely or not at all, and then runs the
// server. Postgres refuses to run as root.
//
//go:embed postgres.sh
var startPostgres string

// objectStore is the S3 server on one folder.
func objectStore(b Build) process {
	p := newProcess(b, role.Of(role.ObjectStore))
	p.args = []string{"--dir", p.folder, "--listen", networkOf(b).address(role.PortAPI), "--bucket", bucket}
	p.secrets = map[string]string{"AWS_ACCESS_KEY_ID": ItemAccessKey, "AWS_SECRET_ACCESS_KEY": ItemSecretKey}
	if b.TLS {
		p.args = append(p.args, "--tls-cert", secret(fileCert), "--tls-key", secret(fileKey))
		p.files = map[string]string{fileCert: ItemCert, fileKey: ItemKey}
	}
	p.adjust = func(g *api.TaskGroup) {
		stopFirst(g)
		for _, t := range g.Tasks[0].Templates {
			t.ChangeMode = new("restart") // it reads its certificate only when it starts
		}
	}
	return p
}

// dashboard requires no token, so it listens only on the loopback address.
func dashboard(b Build) process {
	row := role.Of(role.UI)
	p := reach(b, newProcess(b, row, "--listen", local(role.PortUI), "--health", local(role.PortHealth),
		"--ui", net.JoinHostPort(loopback, strconv.Itoa(b.Ports.TemporalUI))), row.Needs)
	p.secrets["TEMPER_UI_TOKEN"] = ItemUIToken
	return p
}

const bucket = "temper"

// stopFirst makes a group stop its old instance before a new one starts, because two
// instances must not use one folder.
func stopFirst(g *api.TaskGroup) { g.Update.Canary = new(0) }

// StoreAt returns the URL of the store for a client; address is host:port of the cluster's own server, and ca the file
// with the cluster's authority.
func (b Build) StoreAt(address, ca string) string {
	if b.Store != "" {
		return b.Store
	}
	url := "s3://" + bucket + "?endpoint=" + networkOf(b).scheme() + "://" + address + "&path_style=true&region=us-east-1"
	if b.TLS {
		url += "&ca=" + ca
	}
	return url
}
