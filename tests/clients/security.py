"""Users, roles, API keys and logins by the clients of OpenSearch and of Elasticsearch 7 and 8, with every kind of
credentials."""

import sys

import elasticsearch7
import elasticsearch8
import opensearchpy

from accounts import KEY, elasticsearch, login, refused
from target import PASSWORD, URL, USER, call, expect

if not USER:
    sys.exit(77)


def opensearch():
    client = opensearchpy.OpenSearch(URL, http_auth=(USER, PASSWORD))
    security = client.security
    user, role = "user-opensearch", "role-opensearch"
    expect(security.health()["status"], "UP", "health")
    expect(security.get_account_details()["user_name"], USER, "get_account_details")
    grants = [{"index_patterns": ["logs-*"], "allowed_actions": ["read", "indices:data/read/search*"]}]
    body = {"cluster_permissions": ["cluster_monitor"], "index_permissions": grants, "tenant_permissions": []}
    expect(security.create_role(role=role, body=body)["status"], "CREATED", "create_role")
    found = security.get_role(role=role)[role]
    expect(found["index_permissions"][0]["index_patterns"], ["logs-*"], "get_role")
    said = {"password": "correct horse: battery", "backend_roles": ["ops"], "attributes": {"team": "x"}}
    expect(security.create_user(username=user, body=said)["status"], "CREATED", "create_user")
    expect(security.get_user(username=user)[user]["backend_roles"], ["ops"], "get_user")
    mapping = {"backend_roles": ["ops"], "users": [], "hosts": []}
    expect(security.create_role_mapping(role=role, body=mapping)["status"], "CREATED", "create_role_mapping")
    expect(security.get_role_mapping(role=role)[role]["backend_roles"], ["ops"], "get_role_mapping")

    own = opensearchpy.OpenSearch(URL, http_auth=(user, said["password"]))
    expect(own.security.get_account_details()["roles"], [role], "roles of a mapping")
    own.security.change_password(body={"current_password": said["password"], "password": "another: one"})
    refused(opensearchpy.AuthenticationException, own.security.get_account_details)
    own = opensearchpy.OpenSearch(URL, http_auth=(user, "another: one"))
    expect(own.security.authinfo()["user_name"], user, "authinfo")
    refused(opensearchpy.AuthorizationException, own.security.get_users)

    patch = [{"op": "replace", "path": "/attributes", "value": {"team": "y"}}]
    expect(security.patch_user(username=user, body=patch)["status"], "OK", "patch_user")
    expect(security.get_users()[user]["attributes"], {"team": "y"}, "get_users")
    patch = [{"op": "add", "path": "/users", "value": [user]}]
    expect(security.patch_role_mapping(role=role, body=patch)["status"], "OK", "patch_role_mapping")
    patch = [{"op": "replace", "path": f"/{role}/description", "value": "reads logs"}]
    expect(security.patch_roles(body=patch)["status"], "OK", "patch_roles")
    expect(security.get_roles()[role]["description"], "reads logs", "get_roles")
    assert "read" in security.get_action_groups(), "get_action_groups"

    token = login(user, "another: one")
    for header in ({"token": token}, {"authorization": f"Bearer {token}"}):
        by_token = opensearchpy.OpenSearch(URL, headers=header)
        expect(by_token.security.authinfo()["user_name"], user, "token")
    status, made = call("POST", "/_security/api_key", {"name": "key-opensearch", **KEY})
    expect(status, 200, "API key")
    by_key = opensearchpy.OpenSearch(URL, headers={"authorization": f"ApiKey {made['encoded']}"})
    expect(by_key.security.authinfo()["user_name"], USER, "API key")
    call("DELETE", "/_security/api_key", {"ids": [made["id"]]})
    refused(opensearchpy.AuthenticationException, by_key.security.authinfo)

    expect(security.delete_role_mapping(role=role)["status"], "OK", "delete_role_mapping")
    expect(security.delete_user(username=user)["status"], "OK", "delete_user")
    expect(security.delete_role(role=role)["status"], "OK", "delete_role")
    expect(security.flush_cache()["status"], "OK", "flush_cache")
    refused(opensearchpy.NotFoundError, lambda: security.get_user(username=user))
    refused(opensearchpy.AuthenticationException, by_token.security.authinfo)


elasticsearch(elasticsearch7, "7", lambda pair: {"http_auth": pair})
elasticsearch(elasticsearch8, "8", lambda pair: {"basic_auth": pair})
opensearch()
