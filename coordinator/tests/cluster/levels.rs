//! Nodes of two versions in one cluster, and raising its level (REPLICATION R4).

use thalweg_proto::v1::admin_client::AdminClient;
use thalweg_proto::v1::*;

use crate::nodes::{Nodes, within};

/// What a version before the present one says of itself.
const EARLIER: Levels = Levels { min: 1, max: 3 };

const LEVEL: u32 = *thalweg_proto::LEVELS.end();

async fn raise(nodes: &Nodes, level: u32) -> (i32, String, u32) {
    let raise = |channel| async move {
        AdminClient::new(channel).raise_level(RaiseLevelRequest { level, validate_only: false }).await
    };
    let answer = nodes.call(raise).await;
    let error = answer.error.unwrap();
    (error.code, error.message, answer.level)
}

async fn described(nodes: &Nodes) -> DescribeLevelsResponse {
    nodes.call(|channel| async move { AdminClient::new(channel).describe_levels(DescribeLevelsRequest {}).await }).await
}

/// Goal: the whole of an upgrade: the new version is founded low beside an old one, node by node becomes new, an old one comes
/// back meanwhile, and only the raise ends that. Method: three coordinators, one of which says that it is old until its last
/// restart; at each step what may not be is refused with the name of who stands in the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_node_comes_back_until_the_level_is_raised_and_never_after() {
    let mut nodes = Nodes::new(&[1, 2, 3]);
    nodes.levels.insert(2, EARLIER);
    let mut nodes = nodes.started().await;
    assert_eq!(described(&nodes).await.level, 3, "as high as every founder can do");
    nodes.join_broker(1).await;

    let (code, message, level) = raise(&nodes, LEVEL).await;
    assert_eq!((code, level), (95, 3), "{message}");
    assert!(message.contains("coordinator 2") && message.contains("newer version"), "{message}");
    let (code, message, _) = raise(&nodes, LEVEL + 1).await;
    assert!(code == 95 && message.contains(&format!("1 to {LEVEL}")), "{message}");
    let (code, message, _) = raise(&nodes, 2).await;
    assert!(code == 95 && message.contains("never lowered"), "{message}");
    assert_eq!(raise(&nodes, 0).await.2, 3, "whatever all can do is done already");

    // New, old again, new.
    for levels in [Levels::ours(), EARLIER, Levels::ours()] {
        nodes.kill(2);
        nodes.levels.insert(2, levels);
        nodes.start(2).await;
        nodes.create(&format!("with-{}", levels.max)).await;
        nodes.wait_until_equal(2, nodes.leader().await).await;
    }
    nodes.kill(2);
    let (code, message, _) = raise(&nodes, LEVEL).await;
    assert!(code == 95 && message.contains("coordinator 2") && message.contains("does not answer"), "{message}");
    nodes.start(2).await;
    within("coordinator 2", async {
        while raise(&nodes, LEVEL).await.0 != 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(described(&nodes).await.level, LEVEL);
    nodes.wait_until_equal(2, nodes.leader().await).await;

    nodes.kill(2);
    nodes.levels.insert(2, EARLIER);
    let refused = nodes.try_start(2).await.unwrap_err();
    assert!(refused.contains(&format!("level {LEVEL}")) && refused.contains("newer version"), "{refused}");
    nodes.levels.insert(4, EARLIER);
    nodes.start(4).await;
    let reason = nodes.failed(4).await;
    assert!(reason.contains("cannot work at it"), "{reason}");
}
