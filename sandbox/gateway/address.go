package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"temper/sandbox/httpapi"
)

// CheckNodes returns an error that names every malformed address.
func CheckNodes(addresses []string) error {
	_, err := parseAddresses(addresses)
	return err
}

// parseAddresses parses addresses of the configuration, which may be Unix sockets.
func parseAddresses(texts []string) ([]string, error) {
	var errs []error
	addresses := make([]string, 0, len(texts))
	for _, text := range texts {
		address, err := text, error(nil)
		if !strings.HasPrefix(text, httpapi.UnixPrefix) {
			address, err = parseAddress(text)
		}
		addresses, errs = append(addresses, address), append(errs, err)
	}
	return addresses, errors.Join(errs...)
}

// parseAddress returns the canonical form of a node's address: host:port, or
// https://host:port. Errors do not repeat a part that could be a password.
func parseAddress(text string) (string, error) {
	full := text
	if !strings.Contains(text, "://") {
		full = "http://" + text
	}
	u, err := url.Parse(full)
	if err != nil {
		return "", errors.New("node address: not a URL")
	}
	switch {
	case u.User != nil:
		return "", fmt.Errorf("node address %s: holds credentials; the token comes from TEMPER_SANDBOX_TOKEN", u.Host)
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("node address %s: scheme %s is neither http nor https", u.Host, u.Scheme)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("node address %s: only host and port are expected", u.Host)
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("node address %q: host:port is expected", u.Host)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return "", fmt.Errorf("node address %s: names no machine", u.Host)
	}
	address := net.JoinHostPort(strings.ToLower(host), port)
	if u.Scheme == "https" {
		return "https://" + address, nil
	}
	return address, nil
}
