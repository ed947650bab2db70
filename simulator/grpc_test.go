package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"tf-serving-simulator/internal/wire"
)

// selfSigned gives a certificate for 127.0.0.1 and its key, in PEM.
func selfSigned(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return certificate, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
}

func serveForTest(t *testing.T, change func(*options)) (address string, err error) {
	t.Helper()
	o := defaultOptions(1)
	change(o)
	c := newCore(o, &loader{gpu: newDevice("GPU-0", knobs{}), stats: newMetrics()}, 1)
	server, err := newGRPCServer(o, &inference{core: c, stats: newMetrics(), options: o})
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String(), nil
}

func askStatus(t *testing.T, address string, secured credentials.TransportCredentials) error {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(secured))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = wire.NewModelServiceClient(connection).GetModelStatus(ctx, &wire.GetModelStatusRequest{ModelSpec: &wire.ModelSpec{Name: "m"}})
	return err
}

func TestTLSTakesTheKeysThemselvesAsOneLineEach(t *testing.T) {
	certificate, key := selfSigned(t)
	oneLine := func(text string) string { return strings.ReplaceAll(text, "\n", `\n`) }
	file := filepath.Join(t.TempDir(), "ssl.config")
	write := func(text string) func(*options) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return func(o *options) { o.sslConfigFile = file }
	}
	good := fmt.Sprintf("server_key: %q server_cert: %q", key, certificate)
	if good != fmt.Sprintf(`server_key: "%s" server_cert: "%s"`, oneLine(key), oneLine(certificate)) {
		t.Fatal("the test's own quoting changed")
	}
	address, err := serveForTest(t, write(good))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(certificate))
	trusted := credentials.NewTLS(&tls.Config{RootCAs: pool})
	if err := askStatus(t, address, trusted); status.Code(err) != codes.NotFound {
		t.Errorf("over TLS: %v", err)
	}
	if err := askStatus(t, address, insecure.NewCredentials()); status.Code(err) != codes.Unavailable {
		t.Errorf("in the clear: %v", err)
	}
	for name, text := range map[string]string{
		"lines that break within quotes": fmt.Sprintf("server_key: \"%s\" server_cert: \"%s\"", key, certificate),
		"paths in place of keys":         `server_key: "/etc/key.pem" server_cert: "/etc/cert.pem"`,
	} {
		if _, err := serveForTest(t, write(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	address, err = serveForTest(t, write(good+fmt.Sprintf(" client_verify: true custom_ca: %q", certificate)))
	if err != nil {
		t.Fatal(err)
	}
	if err := askStatus(t, address, trusted); status.Code(err) != codes.Unavailable {
		t.Errorf("without a client's certificate: %v", err)
	}
}

func TestTheAgeOfConnectionsCanBeLimited(t *testing.T) {
	address, err := serveForTest(t, func(o *options) {
		o.grpcChannelArguments = "grpc.max_connection_age_ms=50,grpc.max_connection_age_grace_ms=50,grpc.so_reuseport=0"
	})
	if err != nil {
		t.Fatal(err)
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	connection.Connect()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for state := connection.GetState(); state != connectivity.Ready; state = connection.GetState() {
		if !connection.WaitForStateChange(ctx, state) {
			t.Fatal("never connected")
		}
	}
	if !connection.WaitForStateChange(ctx, connectivity.Ready) {
		t.Error("the connection outlived its age")
	}
}
