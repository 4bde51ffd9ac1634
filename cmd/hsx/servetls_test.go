package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issued is a certificate and its key, also as files.
type issued struct {
	pair              tls.Certificate
	certFile, keyFile string
}

// newAuthority makes one, and the file of its certificate.
func newAuthority(t *testing.T, dir, name string) (a authority, file string) {
	t.Helper()
	i := authority{}.issue(t, dir, name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return authority{i.pair.Leaf, i.pair.PrivateKey.(*ecdsa.PrivateKey)}, i.certFile
}

// issue signs a certificate; the zero authority has it sign itself.
func (a authority) issue(t *testing.T, dir, name string, c *x509.Certificate) issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore = time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	if a.cert == nil {
		a = authority{c, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return issued{
		tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		pemFile(t, dir, name+".pem", &pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pemFile(t, dir, name+".key", &pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}
}

func pemFile(t *testing.T, dir, name string, b *pem.Block) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestServeMutualTLS has clients with every kind of certificate at a receiver that asks
// for one: who has none of its authority puts nothing.
func TestServeMutualTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, caFile := newAuthority(t, dir, "ours")
	theirs, _ := newAuthority(t, dir, "theirs")
	server := ours.issue(t, dir, "server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	forClients := func() *x509.Certificate {
		return &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	}
	past := forClients()
	past.NotAfter = time.Now().Add(-time.Minute)
	clients := []struct {
		name string
		with []tls.Certificate
		want int // 0: no answer
	}{
		{"none", nil, 0},
		{"another authority's", []tls.Certificate{theirs.issue(t, dir, "stranger", forClients()).pair}, 0},
		{"its own", []tls.Certificate{authority{}.issue(t, dir, "self", forClients()).pair}, 0},
		{"expired", []tls.Certificate{ours.issue(t, dir, "past", past).pair}, 0},
		{"for servers", []tls.Certificate{server.pair}, 0},
		{"valid", []tls.Certificate{ours.issue(t, dir, "client", forClients()).pair}, 201},
	}
	ds := filepath.Join(dir, "ds")
	s := startServing(t, process(t, "serve", "--out", ds, "--listen", "127.0.0.1:0", "--tls-cert", server.certFile, "--tls-key", server.keyFile, "--client-ca", caFile))
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)
	for i, c := range clients {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12,
			// Whatever the receiver says that it accepts.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(c.with) == 0 {
					return &tls.Certificate{}, nil
				}
				return &c.with[0], nil
			}}}
		id, body := sent(i)
		got := 0
		res, err := (&http.Client{Transport: transport}).Post(s.url+"/v1/samples/"+strings.ReplaceAll(id, "/", "%2F"), "", bytes.NewReader(body))
		if err == nil {
			got = res.StatusCode
			_ = res.Body.Close() // only the code counts
		}
		if got != c.want {
			t.Errorf("%s: got %d, error %v, want %d", c.name, got, err, c.want)
		}
		transport.CloseIdleConnections()
	}
	s.end(t)
	checkServed(t, ds, []int{len(clients) - 1})
}

// TestServePEM names the file that is to blame, and what to do about it.
func TestServePEM(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, caFile := newAuthority(t, dir, "ours")
	server, other := ours.issue(t, dir, "server", &x509.Certificate{}), ours.issue(t, dir, "other", &x509.Certificate{})
	missing, garbage := filepath.Join(dir, "missing"), filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte("-----BEGIN NOTHING-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// What openssl writes, its content apart: that is not looked at.
	pkcs8 := pemFile(t, dir, "pkcs8", &pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})
	legacy := pemFile(t, dir, "legacy", &pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte("x")})
	broken := pemFile(t, dir, "broken", &pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})
	for name, c := range map[string]struct {
		cert, key, ca string
		code          int
		want          string
	}{
		"cert alone":       {server.certFile, "", "", exitUsage, "--tls-cert: it needs --tls-key"},
		"key alone":        {"", server.keyFile, "", exitUsage, "--tls-key: it needs --tls-cert"},
		"authority alone":  {"", "", caFile, exitUsage, "--client-ca: it needs --tls-cert and --tls-key"},
		"no cert":          {missing, server.keyFile, "", exitFailed, "read --tls-cert: open " + missing},
		"no key":           {server.certFile, missing, "", exitFailed, "read --tls-key: open " + missing},
		"no authority":     {server.certFile, server.keyFile, missing, exitFailed, "read --client-ca: open " + missing},
		"garbage cert":     {garbage, server.keyFile, "", exitFailed, "read --tls-cert " + garbage + ": it holds no certificate in PEM"},
		"garbage key":      {server.certFile, garbage, "", exitFailed, "read --tls-key " + garbage + ": it holds no private key in PEM"},
		"garbage ca":       {server.certFile, server.keyFile, garbage, exitFailed, "read --client-ca " + garbage + ": it holds no certificate in PEM"},
		"swapped":          {server.keyFile, server.certFile, "", exitFailed, "read --tls-cert " + server.keyFile + ": it holds no certificate in PEM"},
		"another's key":    {server.certFile, other.keyFile, "", exitFailed, "private key does not match public key"},
		"broken key":       {server.certFile, broken, "", exitFailed, "failed to parse private key"},
		"encrypted, PKCS8": {server.certFile, pkcs8, "", exitFailed, "the key is encrypted"},
		"encrypted, old":   {server.certFile, legacy, "", exitFailed, "`openssl pkey -in KEY -out PLAIN` decrypts it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"serve", "--out", filepath.Join(dir, "ds"), "--listen", "127.0.0.1:0"}
			for flag, value := range map[string]string{"--tls-cert": c.cert, "--tls-key": c.key, "--client-ca": c.ca} {
				if value != "" {
					args = append(args, flag, value)
				}
			}
			if code, _, talk := hsx(args...); code != c.code || !strings.Contains(talk, c.want) {
				t.Errorf("exit %d, %s; want %d with %q", code, talk, c.code, c.want)
			}
		})
	}
}
