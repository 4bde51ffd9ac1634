package receive_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hsx/capture/receive"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	known := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate and a client that trusts it
	defer known.Close()
	pool := x509.NewCertPool()
	pool.AddCert(known.Certificate())
	for name, c := range map[string]struct {
		auth tls.ClientAuthType
		want int
	}{"server": {tls.NoClientCert, http.StatusCreated}, "mutual, client without": {tls.RequireAndVerifyClientCert, 0}} {
		t.Run(name, func(t *testing.T) {
			s := start(t, t.TempDir(), receive.Options{TLS: &tls.Config{Certificates: known.TLS.Certificates, ClientCAs: pool, ClientAuth: c.auth}})
			res, err := known.Client().Post(strings.Replace(s.url, "http:", "https:", 1)+"/v1/samples/x", "", bytes.NewReader(small(t, "x", 1)))
			got := 0
			if err == nil {
				got = res.StatusCode
				_ = res.Body.Close() // only the code counts
				if res.ProtoMajor != 1 {
					t.Errorf("protocol is %s, want HTTP/1", res.Proto)
				}
			}
			if got != c.want {
				t.Errorf("got %d, error %v, want %d", got, err, c.want)
			}
		})
	}
}
