"""What every client of Elasticsearch does with users, roles, API keys and logins, with every kind of credentials."""

import warnings

from target import PASSWORD, URL, USER, call, expect

warnings.simplefilter("ignore")

ROLE = {"cluster": ["monitor"], "indices": [{"names": ["logs-*"], "privileges": ["read"]}]}
KEY = {"role_descriptors": {"all": {"cluster": ["all"], "index": [{"names": ["*"], "privileges": ["all"]}]}}}


def login(name, password):
    status, answer = call("PUT", "/_service/login", {"username": name, "password": password})
    expect((status, answer["status"], answer["username"]), (200, 200, name), "login")
    return answer["token"]


def refused(error, request):
    """Checks that a request is refused for want of credentials, and not of rights."""
    try:
        request()
    except error:
        return
    raise AssertionError(f"{error.__name__} expected")


def elasticsearch(module, name, basic):
    """`basic` makes the arguments of a client that shows a name and a password."""
    make, error = lambda **arguments: module.Elasticsearch(URL, **arguments), module.AuthenticationException
    is_old = name == "7"
    client = make(**basic((USER, PASSWORD)))
    security = client.security
    expect(security.authenticate()["username"], USER, f"{name}: authenticate")

    user, role = f"user-{name}", f"role-{name}"
    form = (lambda body: {"body": body}) if is_old else (lambda body: body)
    expect(security.put_role(name=role, **form(ROLE))["role"]["created"], True, f"{name}: put_role")
    expect(security.get_role(name=role)[role]["indices"][0]["names"], ["logs-*"], f"{name}: get_role")
    # The administrator's own rights, too: what is read below needs them.
    said = {"password": "correct horse: battery", "roles": [role, "admin"], "full_name": "A User", "metadata": {"team": "x"}}
    expect(security.put_user(username=user, **form(said))["created"], True, f"{name}: put_user")
    found = security.get_user(username=user)[user]
    expect((found["roles"], found["metadata"], found["enabled"]), ([role, "admin"], {"team": "x"}, True), f"{name}: get_user")
    rules = {"enabled": True, "roles": [role], "rules": {"field": {"username": f"{user}*"}}}
    made = security.put_role_mapping(name=role, **form(rules))
    expect(made["role_mapping"]["created"], True, f"{name}: put_role_mapping")
    expect(security.get_role_mapping(name=role)[role]["roles"], [role], f"{name}: get_role_mapping")
    assert "monitor" in security.get_builtin_privileges()["cluster"], f"{name}: get_builtin_privileges"

    own = make(**basic((user, said["password"])))
    asked = {"cluster": ["monitor"], "index": [{"names": ["logs-1"], "privileges": ["read"]}]}
    expect(own.security.has_privileges(**form(asked))["has_all_requested"], True, f"{name}: has_privileges")
    assert "monitor" in own.security.get_user_privileges()["cluster"], f"{name}: get_user_privileges"
    security.change_password(username=user, **form({"password": "another: one"}))
    refused(error, own.security.authenticate)
    own = make(**basic((user, "another: one")))

    made = own.security.create_api_key(**form({"name": f"key-{name}", "expiration": "1d", "metadata": {"a": 1}, **KEY}))
    shown = [(made["id"], made["api_key"])]
    shown.append(made["encoded"] if "encoded" in made else shown[0])
    for api_key in shown:
        by_key = make(api_key=api_key)
        found = by_key.security.authenticate()
        expect((found["username"], found["authentication_type"]), (user, "api_key"), f"{name}: api_key")
    whole = own.security.create_api_key(**form({"name": f"whole-{name}"}))
    assert make(api_key=(whole["id"], whole["api_key"])).info()["version"]["number"], "a version"
    listed = own.security.get_api_key(name=f"key-{name}", owner=True)["api_keys"]
    expect([key["id"] for key in listed], [made["id"]], f"{name}: get_api_key")
    if not is_old:
        expect(own.security.query_api_keys(query={"term": {"name": f"key-{name}"}})["total"], 1, f"{name}: query_api_keys")
        expect(own.security.update_api_key(id=made["id"], metadata={"a": 2})["updated"], True, f"{name}: update_api_key")
    revoked = own.security.invalidate_api_key(**form({"ids": [made["id"]], "owner": True}))
    expect((revoked["invalidated_api_keys"], revoked["error_count"]), ([made["id"]], 0), f"{name}: invalidate_api_key")
    refused(error, by_key.security.authenticate)

    token = login(user, "another: one")
    bearer = {"headers": {"authorization": f"Bearer {token}"}} if is_old else {"bearer_auth": token}
    by_token = make(**bearer)
    found = by_token.security.authenticate()
    expect((found["username"], found["authentication_type"]), (user, "token"), f"{name}: bearer")
    security.disable_user(username=user)
    refused(error, by_token.security.authenticate)
    refused(error, own.security.authenticate)
    security.enable_user(username=user)
    own.security.authenticate()

    expect(security.delete_role_mapping(name=role)["found"], True, f"{name}: delete_role_mapping")
    expect(security.delete_user(username=user)["found"], True, f"{name}: delete_user")
    expect(security.delete_role(name=role)["found"], True, f"{name}: delete_role")
    refused(module.NotFoundError, lambda: security.get_user(username=user))
    refused(error, own.security.authenticate)
