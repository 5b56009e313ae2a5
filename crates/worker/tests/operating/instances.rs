//! DEL-29, DEL-30: a slot that another session reads.

use crabka_testkit::{Direction, FaultProxy, PgServer, needs};

use crate::command::Workplace;
use crate::command::database::{Database, ids, until_ids};

/// The configuration of one instance: instances share everything but the file they write to.
fn instance(database: &Database, url: &str) -> Workplace {
    let place = Workplace::new("");
    let config = format!(
        "name = {:?}\n[source]\nurl = {url:?}\ntables = [\"public.orders\"]\nheartbeat_interval_ms = 200\n\
         [sink]\ntype = \"file\"\npath = {:?}\n[checkpoint]\nstore = \"postgres\"\nurl = {:?}\n",
        database.name,
        place.path("out"),
        database.url,
    );
    std::fs::write(place.path("crabka.toml"), config).unwrap();
    place
}

async fn reader(database: &Database) -> Option<i32> {
    let query = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1";
    database.sql.query_one(query, &[&database.name]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn del_30_a_second_instance_ends_fenced_and_the_first_is_not_disturbed() {
    needs!(postgres);
    let database = Database::new().await;
    let (one, other) = (instance(&database, &database.url), instance(&database, &database.url));
    assert!(one.output("init", &["--with", "checkpoint"]).status.success());
    let mut first = one.run(&[]);
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    until_ids(&mut first, &one, &[1]);
    let pid = reader(&database).await.unwrap();

    let mut second = other.run(&["--set", "source.held_slot_limit_ms=2000"]);
    assert_eq!(second.code(), Some(14), "{}", second.log());
    let log = second.log();
    let reported = format!("s: pid {pid}, application crabka");
    assert!(log.contains("another session reads the replication slot") && log.contains(&reported), "{log}");
    let last = log.lines().last().unwrap();
    assert!(last.starts_with("crabka: fenced: ") && last.contains(&format!("pid {pid}")), "{last}");

    assert_eq!(reader(&database).await, Some(pid), "{}", first.log());
    database.run("INSERT INTO orders VALUES (2, 'b')").await;
    until_ids(&mut first, &one, &[1, 2]);
    assert_eq!(ids(&other), Vec::<i64>::new());
    first.terminate();
    database.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn del_30_a_stand_by_takes_over_where_the_first_left_off() {
    needs!(postgres);
    let database = Database::new().await;
    let (one, other) = (instance(&database, &database.url), instance(&database, &database.url));
    assert!(one.output("init", &["--with", "checkpoint"]).status.success());
    let mut first = one.run(&[]);
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    until_ids(&mut first, &one, &[1]);
    let mut second = other.run(&["--set", "source.held_slot_limit_ms=0"]);
    second.until_log("another session reads the replication slot");
    // The position that was stored when the second one started is an old one by now.
    database.run("INSERT INTO orders VALUES (2, 'b')").await;
    until_ids(&mut first, &one, &[1, 2]);
    first.terminate();
    database.run("INSERT INTO orders VALUES (3, 'c')").await;
    until_ids(&mut second, &other, &[3]);
    second.terminate();
    database.drop_slot().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn del_29_our_own_old_connection_is_waited_out() {
    needs!(postgres);
    let server = PgServer::shared_default().await.unwrap();
    let database = Database::on(server).await;
    let proxy = FaultProxy::start(format!("127.0.0.1:{}", server.port())).unwrap();
    let through_proxy = database.url.replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port()));
    assert_ne!(through_proxy, database.url);
    let (one, again) = (instance(&database, &through_proxy), instance(&database, &database.url));
    assert!(one.output("init", &["--with", "checkpoint"]).status.success());
    let mut first = one.run(&[]);
    database.run("INSERT INTO orders VALUES (1, 'a')").await;
    until_ids(&mut first, &one, &[1]);
    let pid = reader(&database).await.unwrap();
    proxy.blackhole(Direction::ToServer);
    proxy.blackhole(Direction::ToClient);
    drop(first);
    database.run("INSERT INTO orders VALUES (2, 'b')").await;
    assert_eq!(reader(&database).await, Some(pid), "the server has not noticed");

    let mut second = again.run(&[]);
    second.until_log(&format!("s: pid {pid}, application crabka"));
    // Now it does.
    proxy.reset();
    second.until("changes", || ids(&again).contains(&2).then_some(()));
    second.terminate();
    database.drop_slot().await;
}
