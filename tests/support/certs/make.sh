#!/bin/sh
# Makes the certificates of the TLS tests anew, here: authorities that know nothing of each other, and what they signed.
# They are committed, so the tests need no openssl; nothing outside the tests may trust them.
set -eu
cd "$(dirname "$0")"

DAYS=36500 # a test that fails in some years for its certificate alone helps nobody

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1-key.pem"; }

authority() {
    new_key "$1"
    openssl req -x509 -new -key "$1-key.pem" -subj "/CN=$1 of the Tallygate tests" -days $DAYS -out "$1.pem" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
}

# NAME AUTHORITY USAGE SUBJECT_ALT_NAME
signed() {
    new_key "$1"
    openssl req -new -key "$1-key.pem" -subj "/CN=$1" -out "$1.csr"
    printf 'basicConstraints=CA:FALSE\nextendedKeyUsage=%s\nsubjectAltName=%s\n' "$3" "$4" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2-key.pem" -CAcreateserial -days $DAYS -extfile "$1.ext" \
        -out "$1.pem"
    rm "$1.csr" "$1.ext"
}

# NAME AUTHORITY: good for everything, until 2021-03-04.
expired() {
    new_key "$1"
    openssl req -new -key "$1-key.pem" -subj "/CN=$1" -out "$1.csr"
    mkdir "$1.ca" && : > "$1.ca/index.txt"
    cat > "$1.ca/config" <<-END
	[ca]
	default_ca = d
	[d]
	database = $1.ca/index.txt
	new_certs_dir = $1.ca
	rand_serial = yes
	default_md = sha256
	policy = p
	x509_extensions = x
	[p]
	commonName = supplied
	[x]
	basicConstraints = CA:FALSE
	extendedKeyUsage = serverAuth, clientAuth
	subjectAltName = IP:127.0.0.1, URI:spiffe://td.example/ns/edge/sa/envoy
	END
    openssl ca -batch -notext -config "$1.ca/config" -cert "$2.pem" -keyfile "$2-key.pem" \
        -startdate 20210101000000Z -enddate 20210304000000Z -in "$1.csr" -out "$1.pem"
    rm -r "$1.csr" "$1.ca"
}

authority ca
authority other-ca
signed loopback ca serverAuth IP:127.0.0.1
signed named ca serverAuth DNS:redis.example
signed client ca clientAuth DNS:tallygate.example
signed stranger other-ca clientAuth DNS:tallygate.example
# A mesh: one authority for all its workloads, whatever they are.
authority mesh
signed sidecar mesh serverAuth IP:127.0.0.1
signed sidecar-renewed mesh serverAuth IP:127.0.0.1
signed envoy mesh clientAuth URI:spiffe://td.example/ns/edge/sa/envoy
signed neighbour mesh clientAuth URI:spiffe://td.example/ns/shop/sa/web
signed two-ids mesh clientAuth URI:spiffe://td.example/ns/edge/sa/envoy,URI:spiffe://td.example/ns/shop/sa/web
expired expired mesh

# Workloads with SPIFFE IDs. One authority may know several trust domains, and sign a certificate with names of both.
authority workloads
signed workload-a workloads clientAuth URI:spiffe://td.example/ns/shop/sa/a
signed workload-b workloads clientAuth URI:spiffe://td.example/ns/shop/sa/b
signed workload-elsewhere workloads clientAuth URI:spiffe://elsewhere.example/ns/shop/sa/a
signed workload-both workloads clientAuth URI:spiffe://elsewhere.example/ns/shop/sa/a,URI:spiffe://td.example/ns/shop/sa/a
# As workload-a calls itself, but by an authority that nobody trusts.
authority forger
signed workload-forged forger clientAuth URI:spiffe://td.example/ns/shop/sa/a

# Workloads of an Istio mesh, and one of a mesh that trusts the same authority under another name.
authority istio
signed mesh-orders istio serverAuth URI:spiffe://cluster.local/ns/orders/sa/orders
signed mesh-shop istio clientAuth URI:spiffe://cluster.local/ns/shop/sa/web
signed mesh-jobs istio clientAuth URI:spiffe://cluster.local/ns/jobs/sa/batch
signed mesh-foreign istio clientAuth URI:spiffe://elsewhere.example/ns/shop/sa/web
# What is signed is signed.
rm -f ca-key.pem other-ca-key.pem mesh-key.pem workloads-key.pem forger-key.pem istio-key.pem ./*.srl
