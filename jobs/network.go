package jobs

import (
	"fmt"
)

// network describes how the processes of a cluster reach each other.
type network struct {
	name string // name of the cluster
	tls  bool
}

func networkOf(b Build) network { return network{b.Name, b.TLS} }

// address returns the listen address of a port: the loopback address unless the cluster
// speaks TLS.
func (n network) address(port string) string {
	if n.tls {
		return "${NOMAD_IP_" + port + "}:${NOMAD_PORT_" + port + "}"
	}
	return local(port)
}

// local returns the address of a port on the loopback address.
func local(port string) string { return loopback + ":${NOMAD_PORT_" + port + "}" }

func (n network) scheme() string {
	if n.tls {
		return "https"
	}
	return "http"
}

// certificates returns the files that a role needs for TLS.
func (n network) certificates() map[string]string {
	if !n.tls {
		return map[string]string{}
	}
	return map[string]string{fileCert: ItemCert, fileKey: ItemKey, fileCA: ItemCA}
}

// serveTLS returns the flags of a server.
func (n network) serveTLS() []string {
	if !n.tls {
		return nil
	}
	return []string{"--tls-cert", secret(fileCert), "--tls-key", secret(fileKey), "--tls-client-ca", secret(fileCA)}
}

// clientTLS returns the environment with which a process calls a gateway over TLS.
func (n network) clientTLS() map[string]string {
	if !n.tls {
		return map[string]string{}
	}
	return map[string]string{"TEMPER_SANDBOX_TLS_CA": secret(fileCA), "TEMPER_SANDBOX_TLS_CERT": secret(fileCert), "TEMPER_SANDBOX_TLS_KEY": secret(fileKey)}
}

// PlacesKey is the environment variable that names the file with the addresses of servers. PlacesMissing begins
// the lines of that file that name servers without an address: Nomad reads them as comments.
const (
	PlacesKey     = "TEMPER_PLACES"
	PlacesMissing = "# missing: "
	filePlaces    = "places.env"
)

// lookup returns a template for a line KEY=value with the address of a role's service, or
// for a line that marks the address as missing; a process waits for it. form is the value
// with .Address and .Port.
func (n network) lookup(key, role, form string) string {
	return fmt.Sprintf("{{ range nomadService %[1]q }}%[2]s=%[3]s\n{{ else }}%[4]s%[1]s\n{{ end }}", n.name+"-"+role, key, form, PlacesMissing)
}
