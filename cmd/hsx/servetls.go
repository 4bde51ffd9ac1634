package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
)

// tls is nil when no flag asks for it.
func (o *serveFlags) tls() (*tls.Config, error) {
	switch {
	case o.tlsCert == "" && o.tlsKey == "" && o.clientCA == "":
		return nil, nil
	case o.tlsCert == "" && o.tlsKey == "":
		return nil, usagef("--client-ca: it needs --tls-cert and --tls-key")
	case o.tlsCert == "":
		return nil, usagef("--tls-key: it needs --tls-cert")
	case o.tlsKey == "":
		return nil, usagef("--tls-cert: it needs --tls-key")
	}
	cert, err := readCertificate(o.tlsCert, o.tlsKey)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if o.clientCA != "" {
		data, err := os.ReadFile(o.clientCA)
		if err != nil {
			return nil, fmt.Errorf("read --client-ca: %w", err)
		}
		c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !c.ClientCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("read --client-ca %s: it holds no certificate in PEM", o.clientCA)
		}
	}
	return c, nil
}

// readCertificate reads a chain and its key, and says which of the two files is to blame.
func readCertificate(certFile, keyFile string) (cert tls.Certificate, err error) {
	chain, err := os.ReadFile(certFile)
	if err != nil {
		return cert, fmt.Errorf("read --tls-cert: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return cert, fmt.Errorf("read --tls-key: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(chain) {
		return cert, fmt.Errorf("read --tls-cert %s: it holds no certificate in PEM", certFile)
	}
	if err := plainKey(key); err != nil {
		return cert, fmt.Errorf("read --tls-key %s: %w", keyFile, err)
	}
	if cert, err = tls.X509KeyPair(chain, key); err != nil {
		return cert, fmt.Errorf("read --tls-cert %s with --tls-key %s: %w", certFile, keyFile, err)
	}
	return cert, nil
}

// plainKey looks for a private key that needs no passphrase.
func plainKey(data []byte) error {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		switch {
		case !strings.HasSuffix(block.Type, "PRIVATE KEY"):
		case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
			return errors.New("the key is encrypted, and nobody can be asked for its passphrase; `openssl pkey -in KEY -out PLAIN` decrypts it")
		default:
			return nil
		}
	}
	return errors.New("it holds no private key in PEM")
}
