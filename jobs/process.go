package jobs

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/internal/role"
	"temper/jobs/spec"
)

// process is one task of a role, from which a job is made.
type process struct {
	name string // name of the role
	// id is the job's id. service is the name of the process's service.
	id, service string
	settings    spec.Role
	// program is one of the cluster's programs, without its folder; systemProgram replaces it by the path of a program
	// of the node's system.
	program, systemProgram string
	args                   []string
	env                    map[string]string
	// folder is the folder of the process on its node; empty for none.
	folder string
	// ports maps names to numbers; Nomad chooses a port of 0.
	ports []api.Port
	// serve is the port of the service; empty for none.
	serve string
	// check is Nomad's health check of the process; nil for none.
	check *api.ServiceCheck
	// secrets maps variables of the environment, and files maps files below the secrets folder, to items of the
	// variable with that path in Nomad.
	secrets, files map[string]string
	variable       string
	// texts holds further files below the local folder, without secrets.
	texts map[string]string
	// needs maps other roles to template lines with their addresses.
	needs map[string]string
	// identities lists the identities that Nomad signs for the process.
	identities []*api.WorkloadIdentity
	// signal asks the process to end; empty means SIGTERM.
	signal string
	// adjust changes the finished group; nil changes nothing.
	adjust func(*api.TaskGroup)
}

// newProcess returns the process of a role as its row in the table of roles describes it.
func newProcess(b Build, row role.Row, flags ...string) process {
	p := process{
		name: row.Name, id: b.ID(row.Name), service: b.ID(row.Name), variable: b.Variable(row.Name),
		program: row.Program, args: row.Arguments(flags...),
		env: map[string]string{}, secrets: map[string]string{}, files: map[string]string{}, needs: map[string]string{},
	}
	if row.Job == nil {
		return p
	}
	p.settings, p.folder, p.serve = b.Of(row.Name), Folder(b, row.Name), row.Job.Serves
	for _, port := range row.Job.Ports {
		p.ports = append(p.ports, api.Port{Label: port.Label, Value: b.Port(port.Key)})
	}
	p.check = healthCheck(row.Job.CheckPort)
	if row.Job.Check == role.CheckConnect {
		p.check = connectCheck(row.Job.CheckPort)
	}
	return p
}

const (
	// loopback is the listen address of ports that other machines must not reach.
	loopback = "127.0.0.1"
	// healthSuffix ends the name of the service of a health port.
	healthSuffix = "-health"
)

// healthCheck asks /healthz of a port, and restarts the process without a good answer.
func healthCheck(port string) *api.ServiceCheck {
	return &api.ServiceCheck{
		Name: "alive", Type: "http", PortLabel: port, Path: "/healthz", Method: "GET", Interval: 5 * time.Second, Timeout: 3 * time.Second,
		CheckRestart: &api.CheckRestart{Limit: 6, Grace: new(90 * time.Second)},
	}
}

// connectCheck checks that a port accepts connections.
func connectCheck(port string) *api.ServiceCheck {
	return &api.ServiceCheck{Name: "open", Type: "tcp", PortLabel: port, Interval: 2 * time.Second, Timeout: 2 * time.Second}
}
